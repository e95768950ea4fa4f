// Engines over the stand-in driver: what the driver is asked, by whom, and what
// becomes of each of its errors. Kernels are compiled by NVRTC and not run.
#include <dlfcn.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/stream.h"
#include "tests/kernels/run_calls.h"
#include "tests/stand_in/stand_in_driver.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

constexpr char kStore[] = "store/e4m3_row/d128/g1/page16/bf16";
constexpr char kDecode[] = "decode/e4m3_row/d128/g4/page16/bf16";
constexpr char kExtend[] = "extend/e4m3_row/d128/g4/page16/bf16";

class StandIn : public ::testing::Test {
 protected:
  void SetUp() override {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const auto find = [&](const char* name) {
      return driver == nullptr ? nullptr : dlsym(driver, name);
    };
    const auto settings = reinterpret_cast<StandInSettingsFunction*>(
        find("kvforge_stand_in_settings"));
    counts_ = reinterpret_cast<StandInCountsFunction*>(
        find("kvforge_stand_in_counts"));
    ASSERT_TRUE(settings != nullptr && counts_ != nullptr)
        << "the driver is no stand-in; LD_LIBRARY_PATH names its folder";
    settings_ = settings();
    *settings_ = StandInSettings();
    {
      const auto kernel = (*CreateEngine(0))->Prepare(*ParseSpec(kStore));
      if (absl::IsUnavailable(kernel.status())) {
        GTEST_SKIP() << "engines over a driver did not run: "
                     << kernel.status();
      }
      ASSERT_TRUE(kernel.ok()) << kernel.status();
    }
    before_ = counts_();
  }

  // Every test gives back what it took, and misuses nothing.
  void TearDown() override {
    if (settings_ == nullptr || IsSkipped()) return;
    settings_->failing = nullptr;
    const StandInCounts now = counts_();
    EXPECT_EQ(now.libraries, before_.libraries);
    EXPECT_EQ(now.buffers, before_.buffers);
    EXPECT_EQ(now.streams, before_.streams);
    EXPECT_EQ(now.events, before_.events);
    EXPECT_EQ(now.graphs, before_.graphs);
    EXPECT_EQ(now.contexts, before_.contexts);
    EXPECT_EQ(now.misuses, before_.misuses);
  }

  static absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(int device) {
    EngineOptions options = *EngineOptionsFromEnvironment();
    options.target = TargetKind::kCuda;
    options.device = device;
    return Engine::Create(std::move(options));
  }
  static std::shared_ptr<const PreparedKernel> Prepared(Engine& engine,
                                                        const char* spec) {
    auto kernel = engine.Prepare(*ParseSpec(spec));
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return *std::move(kernel);
  }
  // Of `device`, since the test began.
  long long Launches(int device) const {
    return counts_().launches[device] - before_.launches[device];
  }
  absl::Status Live(Engine& engine, long long& last) const;
  void Fail(const char* call, int result, int skipped = 0) {
    settings_->failing = call;
    settings_->result = result;
    settings_->skipped = skipped;
  }

  StandInSettings* settings_ = nullptr;
  StandInCountsFunction* counts_ = nullptr;
  StandInCounts before_;
};

CuContext CurrentContext(const Engine& engine) {
  CuContext context = nullptr;
  EXPECT_EQ(engine.device()->api().CtxGetCurrent(&context), 0);
  return context;
}

TEST_F(StandIn, TwoDevicesHaveKernelsOfTheirOwn) {
  std::unique_ptr<Engine> engines[2];
  std::vector<std::function<absl::Status()>> calls[2];
  for (int i = 0; i < 2; ++i) {
    engines[i] = *CreateEngine(i);
    for (const char* spec : {kStore, kDecode, kExtend}) {
      const auto kernel = Prepared(*engines[i], spec);
      EXPECT_EQ(kernel->key().arch, i == 0 ? "sm_90a" : "sm_80");
      calls[i].push_back(MakeRunCall(*engines[i], kernel));
    }
  }
  constexpr int kRounds = 100;
  const auto work = [&](int i) {
    for (int round = 0; round < kRounds; ++round) {
      for (const auto& call : calls[i]) {
        const absl::Status status = call();
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(CurrentContext(*engines[i]), nullptr);
      }
    }
  };
  std::vector<std::thread> threads;
  for (const int i : {0, 1, 0, 1}) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Launches(0), 2 * 3 * kRounds);
  EXPECT_EQ(Launches(1), 2 * 3 * kRounds);
}

TEST_F(StandIn, TheCallersContextStaysCurrent) {
  const auto engine = *CreateEngine(0);
  const auto other = *Device::Open(1);
  const ScopedContext context(*other);
  ASSERT_TRUE(context.status().ok());
  const CuContext callers = CurrentContext(*engine);
  EXPECT_EQ(callers, other->context());
  const auto run = MakeRunCall(*engine, Prepared(*engine, kDecode));
  EXPECT_TRUE(run().ok());
  EXPECT_EQ(CurrentContext(*engine), callers);
  Fail("cuLaunchKernelEx", 719);
  EXPECT_FALSE(run().ok());
  EXPECT_EQ(CurrentContext(*engine), callers);
}

TEST_F(StandIn, CubinsNewerThanTheDriverAreNamed) {
  const auto engine = *CreateEngine(0);
  // Drivers call a cubin of a later toolkit an invalid image.
  auto* api = const_cast<DriverApi*>(&engine->device()->api());
  const int version = api->version;
  api->version = 12000;
  Fail("cuLibraryLoadData", 200);
  const auto refused = engine->Prepare(*ParseSpec(kStore));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  const std::string message(refused.status().message());
  EXPECT_THAT(message, HasSubstr("a driver of CUDA 12.0 does not load"));
  EXPECT_THAT(message, HasSubstr("the cubin is newer than the driver; update "
                                 "the driver or compile with an NVRTC of its "
                                 "version"));
  // Nothing of it is kept: a driver that takes the cubin serves.
  api->version = version;
  settings_->failing = nullptr;
  EXPECT_TRUE(MakeRunCall(*engine, Prepared(*engine, kStore))().ok());
}

TEST_F(StandIn, TensorMapsAreMadeOnce) {
  const auto engine = *CreateEngine(0);
  const auto run = MakeRunCall(*engine, Prepared(*engine, kDecode));
  ASSERT_TRUE(run().ok());
  const long long maps = counts_().encoded_maps;
  EXPECT_GE(maps - before_.encoded_maps, 2);
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(counts_().encoded_maps, maps);
  EXPECT_EQ(Launches(0), 2);
}

TEST_F(StandIn, AMapThatTheDriverRefusesIsAnErrorOfTheCall) {
  const auto engine = *CreateEngine(0);
  const auto run = MakeRunCall(*engine, Prepared(*engine, kDecode));
  Fail("cuTensorMapEncodeTiled", 1, 1);
  const absl::Status refused = run();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("cuTensorMapEncodeTiled"));
  EXPECT_EQ(Launches(0), 0);
  // None of the launch's maps was kept.
  settings_->failing = nullptr;
  EXPECT_TRUE(run().ok());
  EXPECT_EQ(Launches(0), 1);
}

TEST_F(StandIn, ErrorsOfLaunchesAndMemoryHaveTheirCodes) {
  const auto engine = *CreateEngine(0);
  const auto run = MakeRunCall(*engine, Prepared(*engine, kExtend));
  for (const auto& [result, code] :
       {std::pair{2, absl::StatusCode::kResourceExhausted},
        std::pair{701, absl::StatusCode::kResourceExhausted},
        std::pair{719, absl::StatusCode::kInternal}}) {
    Fail("cuLaunchKernelEx", result);
    const absl::Status failed = run();
    EXPECT_EQ(failed.code(), code) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr("cannot launch"));
  }
  settings_->failing = nullptr;
  EXPECT_TRUE(run().ok());
  Fail("cuLibraryLoadData", 2);
  EXPECT_TRUE(
      absl::IsResourceExhausted(engine->Prepare(*ParseSpec(kStore)).status()));
}

// Of an engine: launches, a captured graph, a buffer. `last`: the driver's
// calls so far, at the end.
absl::Status StandIn::Live(Engine& engine, long long& last) const {
  for (const char* spec : {kStore, kDecode}) {
    auto kernel = engine.Prepare(*ParseSpec(spec));
    if (!kernel.ok()) return kernel.status();
    if (absl::Status status = MakeRunCall(engine, *kernel)(); !status.ok()) {
      return status;
    }
  }
  auto stream = Stream::Create(engine.device());
  if (!stream.ok()) return stream.status();
  const char byte = 1;
  auto buffer = DeviceBuffer::FromHost(engine.device(), &byte, 1);
  if (!buffer.ok()) return buffer.status();
  if (absl::Status status = buffer->Fill(0); !status.ok()) return status;
  if (absl::Status status = stream->BeginCapture(); !status.ok()) return status;
  auto graph = stream->EndCapture();
  if (!graph.ok()) return graph.status();
  if (absl::Status status = graph->Launch(stream->get()); !status.ok())
    return status;
  const absl::Status status = stream->Synchronize();
  last = counts_().calls;
  return status;
}

// Whichever call of the driver fails, the error comes back with its name, and
// what was taken is given back.
TEST_F(StandIn, EveryCallMayFail) {
  long long last = 0;  // of the calls before objects end
  const auto live = [&]() -> absl::Status {
    auto engine = CreateEngine(0);
    return engine.ok() ? Live(**engine, last) : engine.status();
  };
  const long long before = counts_().calls;
  ASSERT_TRUE(live().ok());
  const int calls = static_cast<int>(last - before);
  ASSERT_GT(calls, 50);
  for (int call = 0; call < calls; ++call) {
    Fail("*", 999, call);
    const absl::Status status = live();
    settings_->failing = nullptr;
    ASSERT_FALSE(status.ok()) << "call " << call << " of " << calls;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("CUDA_ERROR_OF_THE_STAND_IN (999)"))
        << call;
    const StandInCounts now = counts_();
    ASSERT_EQ(now.libraries, before_.libraries) << call;
    ASSERT_EQ(now.graphs, before_.graphs) << call;
    ASSERT_EQ(now.contexts, before_.contexts) << call;
  }
  EXPECT_TRUE(live().ok());
}

}  // namespace
}  // namespace kvforge
