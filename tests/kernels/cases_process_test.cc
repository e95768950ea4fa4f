// Many tests in one process: one that fails must not make the next one fail.
// Numbers are those of docs/cases.md.
#include <stdio.h>
#include <unistd.h>

#include <filesystem>

#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CaseOptions Small() {
  CaseOptions options;
  options.name = "process";
  options.head_dim = 64;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.q_lens = {1, 2};
  options.kv_lens = {20, 35};
  return options;
}

// What Case47 starts in a process of its own, in this order.
TEST(Case47Probe, DISABLED_FailsByItsNumbers) {
  Bench bench(Generated(Small()));
  bench.Store();
  bench.problem.lse[0] += 1;
  bench.ExpectAllRight(bench.target->AttentionArguments());
}

TEST(Case47Probe, DISABLED_IsRightBehindAFailure) { ExpectCaseRight(Small()); }

// On a GPU by a page table that leads nowhere; on the CPU such an access is an
// error of its launch only, and the loss is pretended.
TEST(Case47Probe, DISABLED_LosesTheContext) {
  Bench bench(Generated(Small()));
  bench.Store();
  if (!OnCuda()) return LoseContextForTest();
  AttentionArgs args = bench.target->AttentionArguments();
  args.page_table = reinterpret_cast<const int*>(uintptr_t{1} << 20);
  EXPECT_FALSE(
      bench.target->Extend(*bench.Kernel(KernelKind::kExtend), args).ok());
}

TEST(Case47Probe, DISABLED_ComesBehindTheLoss) { ExpectCaseRight(Small()); }

TEST(Case47, AFailureReachesNoOtherTestAndALostContextIsNamed) {
  if (ListingSpecs()) return ExpectCaseRight(Small());
  std::error_code error;
  const std::string self =
      std::filesystem::read_symlink("/proc/self/exe", error).string();
  ASSERT_FALSE(error) << error.message();
  const std::string command = absl::StrCat(
      "env -u GTEST_OUTPUT -u GTEST_TOTAL_SHARDS '", self, "' --target ",
      OnCuda() ? "cuda" : "host",
      " --gtest_also_run_disabled_tests --gtest_filter='Case47Probe.*' 2>&1");
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  char part[4096];
  while (size_t bytes = fread(part, 1, sizeof(part), pipe)) {
    output.append(part, bytes);
  }
  EXPECT_NE(pclose(pipe), 0);
  EXPECT_THAT(output,
              HasSubstr("[  FAILED  ] Case47Probe.DISABLED_FailsByItsNumbers"));
  EXPECT_THAT(
      output,
      HasSubstr("[       OK ] Case47Probe.DISABLED_IsRightBehindAFailure"));
  EXPECT_THAT(output, HasSubstr("did not run: the GPU's context was lost in "
                                "Case47Probe.DISABLED_LosesTheContext ("));
  EXPECT_THAT(
      output,
      Not(HasSubstr("[       OK ] Case47Probe.DISABLED_ComesBehindTheLoss")));
  EXPECT_THAT(output, HasSubstr("Case47Probe.DISABLED_ComesBehindTheLoss"));
}

}  // namespace
}  // namespace kvforge
