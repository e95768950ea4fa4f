// The problems that `kvforge bench` times, set up and checked on the CPU.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/extend.h"
#include "kernels/store.h"
#include "tools/bench/attention_problem.h"
#include "tools/bench/decode_call.h"
#include "tools/bench/runners.h"
#include "tools/bench/store_problem.h"

namespace kvforge::bench {
namespace {

Engine& HostEngine() {
  static const std::unique_ptr<Engine> engine = [] {
    absl::StatusOr<std::unique_ptr<Engine>> created =
        Engine::Create(*EngineOptionsFromEnvironment());
    EXPECT_TRUE(created.ok()) << created.status();
    return *std::move(created);
  }();
  return *engine;
}

BenchCase Small(CaseKind kind, KernelKind kernel, const char* format) {
  BenchCase what;
  what.kind = kind;
  what.kernel = kernel;
  what.format = *FindFormat(format);
  what.head_dim = 64;
  what.page_size = 16;
  what.kv_len = 48;
  return what;
}

class AttentionProblems : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto pool = CachePool::Create(HostEngine(), **FindFormat(GetParam()), 64,
                                  kPatternTokens);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
  }

  std::unique_ptr<AttentionProblem> Create(const BenchCase& what) {
    auto problem = AttentionProblem::Create(HostEngine(), *pool_, what);
    EXPECT_TRUE(problem.ok()) << problem.status();
    return *std::move(problem);
  }

  std::unique_ptr<CachePool> pool_;
};

TEST_P(AttentionProblems, DecodeOverSetZeroIsRightAndOverAnotherIsNot) {
  BenchCase what = Small(CaseKind::kDecode, KernelKind::kDecode, GetParam());
  what.group = 4;
  what.batch = 3;
  what.skew = 3;
  const auto problem = Create(what);
  for (const DecodeGrid& grid : {DecodeGrid{0, 0}, DecodeGrid{5, 1}}) {
    const auto call =
        DecodeCall::Create(HostEngine(), what, grid, std::nullopt);
    ASSERT_TRUE(call.ok()) << call.status();
    ASSERT_TRUE(problem->PoisonOut().ok());
    EXPECT_TRUE(std::isinf(*problem->SampledError()));
    ASSERT_TRUE(call->Run(problem->Args(0), nullptr).ok());
    EXPECT_GT(*problem->SampledError(), 0);
    EXPECT_LT(*problem->SampledError(), 0.01);
    ASSERT_TRUE(call->Run(problem->Args(1), nullptr).ok());
    EXPECT_GT(*problem->SampledError(), 0.1);
  }
}

TEST_P(AttentionProblems, ExtendIsRight) {
  BenchCase what = Small(CaseKind::kExtend, KernelKind::kExtend, GetParam());
  what.group = 4;
  what.batch = 2;
  what.q_len = 7;
  const auto problem = Create(what);
  const auto kernel = HostEngine().Prepare(what.Spec());
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  ASSERT_TRUE(problem->PoisonOut().ok());
  ASSERT_TRUE(
      RunExtend(**kernel, {problem->Args(0), what.num_q_heads()}, nullptr)
          .ok());
  EXPECT_LT(*problem->SampledError(), 0.01);
}

INSTANTIATE_TEST_SUITE_P(Formats, AttentionProblems,
                         ::testing::Values("e4m3_row", "e4m3_tensor"));

TEST(PoolCache, IsLargeEnoughForEveryCaseOfItsFormat) {
  BenchCase small = Small(CaseKind::kDecode, KernelKind::kDecode, "e4m3_row");
  BenchCase large = small;
  large.kv_len = 700;
  large.batch = 2;
  PoolCache pools(HostEngine(), {small, large});
  const auto pool = pools.Get(small);
  ASSERT_TRUE(pool.ok()) << pool.status();
  // 1,400 tokens are two patterns.
  EXPECT_EQ((*pool)->num_slots(), 2048);
  EXPECT_EQ(*pools.Get(large), *pool);
}

TEST(StoreProblems, StoredRowsAreExactAndOthersAreNot) {
  BenchCase what = Small(CaseKind::kStore, KernelKind::kStore, "nvfp4_row");
  what.kv_len = 80;
  const auto problem = StoreProblem::Create(HostEngine(), what, 0);
  ASSERT_TRUE(problem.ok()) << problem.status();
  const auto kernel = HostEngine().Prepare(what.Spec());
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(*(*problem)->WrongPart(), 1);
  // Another set of slots is another place.
  ASSERT_TRUE(RunStore(**kernel, (*problem)->Args(1), nullptr).ok());
  EXPECT_EQ(*(*problem)->WrongPart(), 1);
  ASSERT_TRUE(RunStore(**kernel, (*problem)->Args(0), nullptr).ok());
  EXPECT_EQ(*(*problem)->WrongPart(), 0);
}

TEST(CheckAccuracy, OnlyWhatRoundingExplainsIsTimed) {
  CaseResult result;
  result.accuracy = 0.004;
  EXPECT_TRUE(CheckAccuracy(result).ok());
  result.accuracy = 0.2;
  EXPECT_TRUE(absl::IsDataLoss(CheckAccuracy(result)));
  result.accuracy = HUGE_VAL;
  EXPECT_TRUE(absl::IsDataLoss(CheckAccuracy(result)));
}

}  // namespace
}  // namespace kvforge::bench
