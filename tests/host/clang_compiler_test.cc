#include "runtime/host/clang_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/host/host_module.h"
#include "tests/host/host_kernel.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

TEST(CompileHostObject, ReportsEveryDiagnosticWithItsLine) {
  const absl::StatusOr<std::string> object =
      CompileTestKernel("undeclared();\nargs.missing = 1;");
  EXPECT_EQ(object.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(object.status().message());
  EXPECT_THAT(message,
              HasSubstr("host compile: kernel.cu does not compile for "
                        "x86-64-v2; text that compiles without a warning as "
                        "C++17 is supported; mend what the compiler names:\n"));
  EXPECT_THAT(message,
              HasSubstr("kernel.cu:15:1: error: use of undeclared identifier "
                        "'undeclared'"));
  EXPECT_THAT(message, HasSubstr("kernel.cu:16:6: error: no member named "
                                 "'missing' in 'TestArgs'"));
}

TEST(CompileHostObject, AWarningIsAnError) {
  const absl::StatusOr<std::string> object =
      CompileTestKernel("int unused = args.n;");
  EXPECT_EQ(object.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(object.status().message()),
              HasSubstr("error: unused variable 'unused' "
                        "[-Werror,-Wunused-variable]"));
}

TEST(CompileHostObject, ReadsNoFileOfTheSystem) {
  HostSource source;
  source.name = "kernel.cu";
  source.text = "#include <stddef.h>\n#include \"/etc/passwd\"\n";
  const absl::StatusOr<std::string> object = CompileHostObject(source);
  const std::string message(object.status().message());
  EXPECT_THAT(message, HasSubstr("'stddef.h' file not found"));
}

TEST(CompileHostObject, TextInAFolderIncludesAsFromTheRoot) {
  HostSource source;
  source.name = "a/b.cu";
  source.text = "#include \"c/d.cuh\"\nextern \"C\" void kvforge_kernel(Args);";
  source.files = {{"c/d.cuh", "struct Args { int n; };\n#error reached\n"}};
  EXPECT_THAT(std::string(CompileHostObject(source).status().message()),
              HasSubstr("d.cuh:2:2: error: reached"));
}

TEST(CompileHostObject, IsTheSameTwice) {
  const char kBody[] = "args.out[t] = ShuffleXor(args.in[t], 1);";
  const absl::StatusOr<std::string> first = CompileTestKernel(kBody);
  const absl::StatusOr<std::string> second = CompileTestKernel(kBody);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*first, *second);
}

TEST(CompileHostObject, DoesNotContractProducts) {
  // (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 exactly, 0 if the product is rounded.
  const absl::StatusOr<std::unique_ptr<HostModule>> module = LoadTestKernel(
      "const float x = FromBits(0x3f800800 + args.n);\n"
      "args.out[0] = Bits(x * x - 0x1.002p0f);\n"
      "args.out[1] = Bits(Fma(x, x, -0x1.002p0f));");
  ASSERT_TRUE(module.ok()) << module.status();
  const absl::StatusOr<std::vector<uint32_t>> out = RunTestKernel(**module);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0], 0u);
  EXPECT_EQ((*out)[1], 0x33800000u);  // 2^-24
}

TEST(HostCompilerVersion, NamesCompilerAndProcessor) {
  EXPECT_THAT(HostCompilerVersion(),
              ::testing::MatchesRegex("clang [0-9]+\\.[0-9.]+ x86-64-v2 -O."));
}

TEST(HostModule, ReadsTheConstantsOfTheText) {
  const absl::StatusOr<std::unique_ptr<HostModule>> module = LoadTestKernel("");
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ((*module)->shared_bytes(), 256);
  EXPECT_EQ((*module)->block_threads(), 64);
}

TEST(HostModule, RefusesWhatIsNoObjectOrLacksTheEntry) {
  const absl::Status garbage =
      HostModule::Load("not an object", kHostEntrySymbol).status();
  EXPECT_EQ(garbage.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(garbage.message()),
              HasSubstr("host module: the object cannot be loaded: "));
  const absl::StatusOr<std::string> object = CompileTestKernel("");
  ASSERT_TRUE(object.ok()) << object.status();
  const absl::Status missing =
      HostModule::Load(*object, "no_such_entry").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("no_such_entry"));
  // A cut file, such as a full disk leaves.
  const absl::Status cut =
      HostModule::Load(object->substr(0, object->size() / 2), kHostEntrySymbol)
          .status();
  EXPECT_EQ(cut.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvforge
