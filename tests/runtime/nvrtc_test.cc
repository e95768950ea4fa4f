#include "runtime/cuda/nvrtc_compiler.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/target/target.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/digest.h"
#include "runtime/base/knobs.h"
#include "runtime/cuda/cubin_facts.h"
#include "runtime/cuda/nvrtc_library.h"
#include "runtime/cuda/ptxas_log.h"
#include "tests/runtime/nvrtc_kernels.h"

namespace kvforge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

NvrtcInput VectorAddInput(absl::string_view arch) {
  NvrtcInput input;
  input.name = "vector_add.cu";
  input.source = kVectorAdd;
  input.headers = {{"ops/vector_add_args.h", kVectorAddArgs},
                   {"ops/block.h", kBlock}};
  input.arch = std::string(arch);
  input.kernel = "kvforge_kernel";
  return input;
}

NvrtcInput Input(absl::string_view source, absl::string_view arch = "sm_80") {
  NvrtcInput input;
  input.name = "text.cu";
  input.source = std::string(source);
  input.arch = std::string(arch);
  input.kernel = "kvforge_kernel";
  return input;
}

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = NvrtcCompiler::Open(Knobs());
    if (absl::IsUnavailable(opened.status())) {
      GTEST_SKIP() << opened.status();
    }
    ASSERT_TRUE(opened.ok()) << opened.status();
    compiler_ = *std::move(opened);
  }

  std::unique_ptr<NvrtcCompiler> compiler_;
};

// A struct aligned to 64 bytes does not start where the parameters do.
TEST_F(NvrtcTest, KnowsTheSizeOfAnAlignedArgument) {
  NvrtcInput input = VectorAddInput("sm_90a");
  input.source =
      "struct alignas(64) Args { unsigned* out; char rest[120]; };\n"
      "extern \"C\" __constant__ int kvforge_shared_bytes = 0;\n"
      "extern \"C\" __constant__ int kvforge_block_threads = 32;\n"
      "extern \"C\" __global__ void aligned(const __grid_constant__ Args args) "
      "{ *args.out = args.rest[119]; }\n";
  input.kernel = "aligned";
  const auto output = compiler_->Compile(input);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->facts.param_bytes, 128);
}

TEST_F(NvrtcTest, CompilesForEveryServedGpuWithTheFactsOfTheText) {
  int served = 0;
  for (const GpuTarget& target : kTargets) {
    if (!target.served) continue;
    ++served;
    SCOPED_TRACE(std::string(target.nvrtc_arch));
    const auto output = compiler_->Compile(VectorAddInput(target.nvrtc_arch));
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(output->facts.compute_capability, target.compute_capability);
    EXPECT_EQ(output->facts.param_bytes, 32);  // three pointers and a count
    EXPECT_EQ(output->facts.local_bytes, 0);
    EXPECT_EQ(output->spill_bytes, 0);
    EXPECT_EQ(output->static_shared_bytes, 0);
    EXPECT_EQ(output->shared_bytes, kVectorAddSharedBytes);
    EXPECT_EQ(output->block_threads, kVectorAddBlockThreads);
    EXPECT_EQ(output->compiler, compiler_->compiler());
    // The file and the assembler's log agree.
    EXPECT_GT(output->facts.registers, 4);
    EXPECT_THAT(output->log,
                HasSubstr(absl::StrCat("Used ", output->facts.registers,
                                       " registers")));
    EXPECT_THAT(compiler_->compiler(),
                HasSubstr(absl::StrCat(output->facts.toolkit_version / 10, ".",
                                       output->facts.toolkit_version % 10)));
  }
  EXPECT_EQ(served, 10);
}

TEST_F(NvrtcTest, ReadsNegativeConstantsAndStaticSharedMemory) {
  const auto output = compiler_->Compile(Input(R"cuda(
extern "C" __constant__ int first = 7;
extern "C" __constant__ int kvforge_shared_bytes = -123456789;
extern "C" __global__ void kvforge_kernel(int* out) {
  __shared__ int values[64];
  values[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = values[63 - threadIdx.x];
})cuda",
                                               "sm_90a"));
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->shared_bytes, -123456789);
  EXPECT_EQ(output->block_threads, -1);
  EXPECT_EQ(*ReadConstantInt(output->cubin, "first"), 7);
  EXPECT_EQ(output->static_shared_bytes, 64 * 4);
  EXPECT_TRUE(
      absl::IsNotFound(ReadConstantInt(output->cubin, "second").status()));
  EXPECT_TRUE(
      absl::IsNotFound(ReadCubinFacts(output->cubin, "other").status()));
}

// 64 live values a thread and room for 32 registers.
TEST_F(NvrtcTest, SeesSpills) {
  constexpr char kSpilling[] = R"cuda(
extern "C" __global__ void __launch_bounds__(1024, 2) kvforge_kernel(
    float* x, int n) {
  float v[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = x[i * n + threadIdx.x];
  for (int j = 0; j < n; ++j) {
#pragma unroll
    for (int i = 0; i < 64; ++i) v[i] = v[i] * v[(i * 7 + 3) % 64] + x[j];
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i * n + threadIdx.x] = v[i];
})cuda";
  const auto output = compiler_->Compile(Input(kSpilling));
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->facts.registers, 32);  // 65536 / 2048 threads
  EXPECT_GT(output->spill_bytes, 0);
  EXPECT_GT(output->facts.local_bytes, 0);
}

TEST_F(NvrtcTest, ACompileErrorCarriesLogAndOptions) {
  const auto output = compiler_->Compile(
      Input("extern \"C\" __global__ void kvforge_kernel() { oops; }"));
  ASSERT_TRUE(absl::IsInternal(output.status())) << output.status();
  EXPECT_THAT(std::string(output.status().message()),
              AllOf(HasSubstr("text.cu(1)"), HasSubstr("\"oops\""),
                    HasSubstr("--fmad=false"), HasSubstr("sm_80"),
                    HasSubstr(compiler_->compiler())));
}

TEST_F(NvrtcTest, AMissingHeaderIsNamed) {
  NvrtcInput input = VectorAddInput("sm_80");
  input.headers.pop_back();
  EXPECT_THAT(std::string(compiler_->Compile(input).status().message()),
              HasSubstr("ops/block.h"));
}

TEST_F(NvrtcTest, AWarningIsAnError) {
  const auto output = compiler_->Compile(Input(R"cuda(
extern "C" __global__ void kvforge_kernel(unsigned* x) {
  if (x[0] < 0) x[0] = 1;
})cuda"));
  ASSERT_TRUE(absl::IsInternal(output.status())) << output.status();
  EXPECT_THAT(std::string(output.status().message()),
              AllOf(HasSubstr("warnings are errors"),
                    HasSubstr("pointless comparison")));
}

// Names that a kernel does not use are what a block of constants is made of.
TEST_F(NvrtcTest, UnusedConstantsAndFunctionsAreNoWarning) {
  const auto output = compiler_->Compile(Input(R"cuda(
namespace kvforge::spec {
constexpr int kWindow = 0;
struct KSide {
  static constexpr int kBlock = 0;
  static __device__ unsigned Scale(unsigned first) { return first; }
};
__device__ float ScoreUniform(float scale) { return scale; }
}  // namespace kvforge::spec
extern "C" __global__ void kvforge_kernel() {})cuda"));
  EXPECT_TRUE(output.ok()) << output.status();
}

TEST_F(NvrtcTest, UnknownArchsAreRefusedWithTheKnownOnes) {
  for (const char* arch : {"sm_77", "sm_90x", "90a", "sm_", "host-sm_80"}) {
    const auto output = compiler_->Compile(VectorAddInput(arch));
    ASSERT_TRUE(absl::IsUnimplemented(output.status())) << output.status();
    EXPECT_THAT(std::string(output.status().message()),
                AllOf(HasSubstr(arch), HasSubstr("sm_80, ")));
  }
}

TEST_F(NvrtcTest, PtxNamesTheExactArch) {
  const auto ptx = compiler_->Ptx(VectorAddInput("sm_90a"));
  ASSERT_TRUE(ptx.ok()) << ptx.status();
  EXPECT_THAT(*ptx, AllOf(HasSubstr(".target sm_90a"),
                          HasSubstr(".entry kvforge_kernel")));
  EXPECT_EQ(ptx->find('\0'), std::string::npos);
}

TEST_F(NvrtcTest, ProductsAndSumsAreNotContracted) {
  constexpr char kProductAndSum[] = R"cuda(
extern "C" __global__ void kvforge_kernel(float* x) {
  x[0] = x[1] * x[2] + x[3];
})cuda";
  NvrtcInput input = Input(kProductAndSum);
  EXPECT_THAT(*compiler_->Ptx(input), Not(HasSubstr("fma")));
  input.options.clear();
  EXPECT_THAT(*compiler_->Ptx(input), HasSubstr("fma"));
}

TEST_F(NvrtcTest, ThreadsCompileAtOnceToTheSameBytes) {
  const auto expected = compiler_->Compile(VectorAddInput("sm_86"));
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::vector<absl::StatusOr<NvrtcOutput>> outputs(4);
  std::vector<std::thread> threads;
  for (auto& output : outputs) {
    threads.emplace_back([this, &output] {
      output = compiler_->Compile(VectorAddInput("sm_86"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& output : outputs) {
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(Sha256Hex(output->cubin), Sha256Hex(expected->cubin));
  }
}

// NVRTC's own cache would give the second one an empty log.
TEST_F(NvrtcTest, ARepeatedCompileHasTheSameFactsAndWarnings) {
  const auto first = compiler_->Compile(VectorAddInput("sm_89"));
  const auto second = compiler_->Compile(VectorAddInput("sm_89"));
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(second->log, HasSubstr("bytes spill stores"));
  EXPECT_EQ(first->facts.registers, second->facts.registers);
}

// Each copy has exactly its size, so that a sanitizer sees a read past it.
TEST_F(NvrtcTest, DamagedCubinsAreErrorsAndNeverReadPastTheEnd) {
  const std::string cubin = compiler_->Compile(VectorAddInput("sm_90a"))->cubin;
  for (size_t kept = 0; kept < cubin.size(); ++kept) {
    const std::vector<char> cut(cubin.begin(), cubin.begin() + kept);
    const absl::string_view view(cut.data(), cut.size());
    ASSERT_TRUE(
        absl::IsDataLoss(ReadCubinFacts(view, "kvforge_kernel").status()))
        << "kept " << kept;
    ASSERT_FALSE(ReadConstantInt(view, "kvforge_shared_bytes").ok());
  }
  int noticed = 0;
  std::vector<char> bytes(cubin.begin(), cubin.end());
  for (size_t at = 0; at < bytes.size(); ++at) {
    const char good = bytes[at];
    for (const char bad : {'\xff', '\x7f', '\x00'}) {
      bytes[at] = bad;
      const absl::string_view view(bytes.data(), bytes.size());
      const bool whole = ReadCubinFacts(view, "kvforge_kernel").ok() &&
                         ReadConstantInt(view, "kvforge_shared_bytes").ok();
      noticed += !whole;
    }
    bytes[at] = good;
  }
  EXPECT_GT(noticed, 100);
}

TEST(NvrtcSearch, TriesTheKnobThenTheLoaderAndThirteenBeforeTwelve) {
  Knobs knobs;
  knobs.cuda_home = "/toolkit";
  const std::vector<std::string> candidates = NvrtcCandidates(knobs);
  EXPECT_EQ(candidates[0], "/toolkit/lib64/libnvrtc.so.13");
  EXPECT_EQ(candidates[4], "libnvrtc.so.13");
  EXPECT_THAT(candidates.back(), HasSubstr("libnvrtc.so.12"));
}

TEST(PtxasLog, TakesTheLinesOfTheKernelOnly) {
  constexpr char kLog[] =
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'other' for 'sm_90'\n"
      "ptxas         .     8 bytes stack frame, 100 bytes spill stores, "
      "100 bytes spill loads\n"
      "ptxas info    : Used 99 registers, 7 bytes smem\n"
      "ptxas info    : Compiling entry function 'kvforge_kernel' for 'sm_90'\n"
      "ptxas info    : Function properties for kvforge_kernel\n"
      "ptxas         .     8 bytes stack frame, 12 bytes spill stores, "
      "16 bytes spill loads\n"
      "ptxas info    : Function properties for called\n"
      "    0 bytes stack frame, 2 bytes spill stores, 4 bytes spill loads\n"
      "ptxas info    : Used 32 registers, used 1 barriers, 256 bytes smem, "
      "368 bytes cmem[0]\n";
  const auto facts = ParsePtxasLog(kLog, "kvforge_kernel");
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->spill_bytes, 12 + 16 + 2 + 4);
  EXPECT_EQ(facts->static_shared_bytes, 256);
  EXPECT_FALSE(ParsePtxasLog(kLog, "kvforge").ok());
  EXPECT_EQ(FirstWarning(kLog), "");
  EXPECT_EQ(FirstWarning("a\nptxas warning : b\nc"), "ptxas warning : b");
}

}  // namespace
}  // namespace kvforge
