// Engines and kernels in the hands of many threads on the CPU.
#include <thread>

#include "kernels/extend.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

constexpr int kThreads = 8;

CaseOptions SmallCase(int thread) {
  CaseOptions options;
  options.name = absl::StrCat("thread ", thread);
  options.head_dim = 64;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.q_lens = {2, 1};
  options.kv_lens = {20 + thread, 100};
  options.seed = thread + 1;
  return options;
}

void OnThreads(const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

void ExpectRight(Engine& engine, int thread) {
  const CaseRun run = RunCase(engine, Generated(SmallCase(thread)), thread, 2);
  EXPECT_EQ(run.results.size(), 8u);
  for (const KernelResult& result : run.results) {
    EXPECT_TRUE(result.status.ok())
        << "thread " << thread << " " << result.kernel << ": " << result.status;
  }
}

TEST(Threads, OneEngineServesAll) {
  OnThreads([](int thread) {
    for (int round = 0; round < 3; ++round) ExpectRight(TestEngine(), thread);
  });
}

TEST(Threads, EnginesComeAndGoInEachOfThem) {
  OnThreads([](int thread) {
    for (int round = 0; round < 2; ++round) {
      absl::StatusOr<std::unique_ptr<Engine>> engine =
          Engine::Create(*EngineOptionsFromEnvironment());
      ASSERT_TRUE(engine.ok()) << engine.status();
      ExpectRight(**engine, thread);
    }
  });
}

TEST(Threads, StatisticsTellCompilesFromWaiting) {
  EngineOptions options = *EngineOptionsFromEnvironment();
  options.cache_roots.clear();
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(std::move(options));
  ASSERT_TRUE(engine.ok()) << engine.status();
  const KernelSpec spec = *ParseSpec("merge/d64/f32");
  OnThreads([&](int) { KVFORGE_EXPECT_OK((*engine)->Prepare(spec).status()); });
  const EngineStatistics statistics = (*engine)->statistics();
  EXPECT_EQ(statistics.compiles, 1);
  EXPECT_EQ(statistics.disk_hits, 0);
  EXPECT_GT(statistics.waits, 0);
  EXPECT_LE(statistics.waits + statistics.memory_hits, kThreads - 1);
}

TEST(PreparedKernel, RunsAfterItsEngineIsGone) {
  Bench bench(Generated(SmallCase(0)));
  bench.Store();
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(*EngineOptionsFromEnvironment());
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto kernel = (*engine)->Prepare(
      *CaseSpec(bench.problem, KernelKind::kExtend, bench.layout.order));
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  engine->reset();
  std::thread([&] {
    KVFORGE_EXPECT_OK(
        bench.target->Extend(**kernel, bench.target->AttentionArguments()));
  }).join();
  bench.ExpectRight("extend");
}

}  // namespace
}  // namespace kvforge
