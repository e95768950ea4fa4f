// Orders, launches and memory of the host target.
#include "runtime/host/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "tests/host/host_kernel.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<HostModule> Load(const std::string& body) {
  absl::StatusOr<std::unique_ptr<HostModule>> module = LoadTestKernel(body);
  EXPECT_TRUE(module.ok()) << module.status();
  return module.ok() ? *std::move(module) : nullptr;
}

std::vector<uint32_t> Output(const HostModule& module,
                             const TestLaunch& launch = {}, int n = 0) {
  const absl::StatusOr<std::vector<uint32_t>> out =
      RunTestKernel(module, launch, n);
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() ? *out : std::vector<uint32_t>(1024);
}

// Threads take numbers in the order in which they run.
constexpr char kTakeNumbers[] =
    "args.out[1 + BlockIndex() * 64 + t] = args.out[0]++;\n"
    "WarpSync();\n"
    "args.out[513 + BlockIndex() * 64 + t] = args.out[0]++;";

TEST(Order, IsTheSameForASeedAndDiffersBetweenSeeds) {
  const std::unique_ptr<HostModule> module = Load(kTakeNumbers);
  std::set<std::vector<uint32_t>> orders;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    TestLaunch launch;
    launch.blocks = 4;
    launch.seed = seed;
    const std::vector<uint32_t> order = Output(*module, launch);
    EXPECT_EQ(order, Output(*module, launch));
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 16u);
}

TEST(Order, ChangesBetweenTheStepsOfAWarpAndLetsWarpsOvertake) {
  const std::unique_ptr<HostModule> module = Load(kTakeNumbers);
  int reordered = 0;
  int overtaken = 0;  // a warp's second step before another's first
  int in_step = 0;    // both warps' first steps before any second
  for (uint64_t seed = 0; seed < 32; ++seed) {
    TestLaunch launch;
    launch.seed = seed;
    const std::vector<uint32_t> out = Output(*module, launch);
    bool lanes_differ = false;
    for (int a = 0; a < 32; ++a) {
      for (int b = 0; b < 32; ++b) {
        lanes_differ |=
            (out[1 + a] < out[1 + b]) != (out[513 + a] < out[513 + b]);
      }
    }
    reordered += lanes_differ;
    overtaken += out[513] < out[1 + 32] || out[513 + 32] < out[1];
    in_step += out[513] > out[1 + 32] && out[513 + 32] > out[1];
  }
  EXPECT_EQ(reordered, 32);
  EXPECT_GT(overtaken, 0);
  EXPECT_GT(in_step, 0);
}

TEST(SharedMemory, ReportsTheHighestByteAccessed) {
  const std::unique_ptr<HostModule> module = Load(
      "if (args.n > 0 && t == 7) "
      "StoreShared<u16>(SharedBase() + args.n - 2, 1);");
  for (const int high : {0, 2, 100, 256}) {
    std::vector<uint32_t> out(1);
    const TestArgs args = {nullptr, out.data(), high};
    const absl::StatusOr<HostRun> run = module->Run({2, 64, 256, &args, 1});
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(run->shared_high_water, high);
  }
}

TEST(AsyncCopy, ReadsItsSourceInTheWait) {
  // A source that changes between issue and wait is a race; the twin takes the
  // later value.
  const std::unique_ptr<HostModule> module = Load(
      "const u32 own = SharedBase() + 4 * t;\n"
      "StoreGlobal<u32>(args.out + 64 + t, 1);\n"
      "CpAsync<4>(own, args.out + 64 + t, true);\n"
      "CpAsyncCommit();\n"
      "StoreGlobal<u32>(args.out + 64 + t, 2);\n"
      "CpAsyncWait<0>();\n"
      "args.out[t] = LoadShared<u32>(own);");
  const std::vector<uint32_t> out = Output(*module);
  for (int t = 0; t < 64; ++t) EXPECT_EQ(out[t], 2u);
}

TEST(AsyncCopy, WaitLandsTheOldestGroupsOnly) {
  const std::unique_ptr<HostModule> module = Load(
      "if (t == 0) {\n"
      "  for (int i = 0; i < 4; ++i) {\n"
      "    CpAsync<4>(SharedBase() + 4 * i, args.in + 10 + i, i != 1);\n"
      "    CpAsyncCommit();\n"
      "  }\n"
      "  CpAsyncWait<2>();\n"
      "  for (int i = 0; i < 2; ++i)\n"
      "    args.out[i] = LoadShared<u32>(SharedBase() + 4 * i);\n"
      "  CpAsyncWait<0>();\n"
      "  for (int i = 2; i < 4; ++i)\n"
      "    args.out[i] = LoadShared<u32>(SharedBase() + 4 * i);\n"
      "}");
  const std::vector<uint32_t> out = Output(*module);
  EXPECT_EQ(std::vector<uint32_t>(out.begin(), out.begin() + 4),
            (std::vector<uint32_t>{10, 0, 12, 13}));
}

TEST(Launch, RefusesImpossibleShapes) {
  const std::unique_ptr<HostModule> module = Load("");
  const TestArgs args = {};
  struct Case {
    HostLaunch launch;
    const char* what;
  };
  const Case cases[] = {
      {{-1, 64, 0, &args, 0}, "grid_blocks = -1 is not possible; it is 0 or"},
      {{1, 33, 0, &args, 0},
       "block_threads = 33 is not possible; it is a mult"},
      {{1, 0, 0, &args, 0}, "block_threads = 0 is not possible; it is a mult"},
      {{1, 1056, 0, &args, 0}, "block_threads = 1056 is not possible; it is"},
      {{1, 32, -4, &args, 0}, "shared_bytes = -4 is not possible; it is 0 to"},
  };
  for (const Case& c : cases) {
    const absl::Status status = module->Run(c.launch).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.what));
  }
  EXPECT_TRUE(module->Run({0, 64, 0, &args, 0}).ok());
}

TEST(Launch, RunsEveryBlockOnce) {
  const std::unique_ptr<HostModule> module =
      Load("if (t == 0) args.out[BlockIndex()] += 1 + BlockCount();");
  for (const int64_t blocks : {1, 2, 7, 1000}) {
    TestLaunch launch;
    launch.blocks = blocks;
    const std::vector<uint32_t> out = Output(*module, launch);
    for (int64_t i = 0; i < 1000; ++i) {
      EXPECT_EQ(out[i], i < blocks ? 1 + blocks : 0) << i;
    }
  }
}

TEST(Launch, SeveralThreadsShareAModule) {
  const std::unique_ptr<HostModule> module = Load(
      "for (int i = 0; i < 200; ++i) {\n"
      "  StoreShared<u32>(SharedBase() + 4 * t, 64u * i + t);\n"
      "  BlockSync();\n"
      "  args.out[t] += LoadShared<u32>(SharedBase() + 4 * (63 - t));\n"
      "  BlockSync();\n"
      "}");
  const std::vector<uint32_t> expected = Output(*module);
  std::vector<std::vector<uint32_t>> results(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      TestLaunch launch;
      launch.seed = i;
      results[i] = Output(*module, launch);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<uint32_t>& result : results) {
    EXPECT_EQ(result, expected);
  }
}

TEST(Launch, LargeFramesFitTheStack) {
  // 64 KiB of locals a thread, in a block of 1024 threads.
  const std::unique_ptr<HostModule> module = Load(
      "u32 words[16384];\n"
      "for (int i = 0; i < 16384; ++i) words[i] = t + i + args.n;\n"
      "for (int i = 0; i < 16384; ++i)\n"
      "  words[i] += words[(words[i] + 7) % 16384];\n"
      "BlockSync();\n"
      "args.out[t] = words[t];");
  TestLaunch launch;
  launch.threads = 1024;
  const std::vector<uint32_t> out = Output(*module, launch);
  EXPECT_NE(out[0], out[1]);
}

TEST(Launch, AHundredThousandCollectivesOfABlockTakeWellUnderTenSeconds) {
  // About 0.3 s where this was written; the limit is for loaded machines and
  // sanitizers.
  const std::unique_ptr<HostModule> module = Load(
      "u32 x = t;\n"
      "for (int i = 0; i < args.n; ++i) x += ShuffleXor(x, i & 31);\n"
      "args.out[t] = x;");
  TestLaunch launch;
  launch.threads = 128;
  const auto start = std::chrono::steady_clock::now();
  Output(*module, launch, 100000);
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 10.0);
  RecordProperty("seconds", std::to_string(seconds.count()));
}

// A process may hold a thousand kernels, and Linux gives it 65,530 maps.
TEST(Memory, KernelsShareTheirFiberStacks) {
  const auto maps = [] {
    std::ifstream file("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  };
  TestLaunch launch;
  launch.threads = 256;
  std::vector<std::unique_ptr<HostModule>> modules;
  modules.push_back(Load("args.out[t] = t;"));
  Output(*modules[0], launch);
  const auto before = maps();
  for (int i = 0; i < 8; ++i) {
    modules.push_back(Load("args.out[t] = t;"));
    Output(*modules.back(), launch);
  }
  EXPECT_LT(maps() - before, 8 * 32);
}

}  // namespace
}  // namespace kvforge
