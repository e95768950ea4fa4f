#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/knobs.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/module.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "runtime/cuda/stream.h"
#include "tests/runtime/nvrtc_kernels.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

TEST(CudaAbsence, WithoutADriverOrGpuTheErrorSaysWhatToDo) {
  const auto count = Device::Count();
  if (count.ok()) GTEST_SKIP() << "this machine has " << *count << " GPUs";
  EXPECT_TRUE(absl::IsUnavailable(count.status())) << count.status();
  EXPECT_THAT(std::string(count.status().message()), HasSubstr("host target"));
  EXPECT_EQ(Device::Open(0).status(), count.status());
}

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = Device::Open(0);
    if (absl::IsUnavailable(device.status())) GTEST_SKIP() << device.status();
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *device;
    auto compiler = NvrtcCompiler::Open(Knobs());
    if (absl::IsUnavailable(compiler.status())) {
      GTEST_SKIP() << compiler.status();
    }
    compiler_ = *std::move(compiler);
  }

  NvrtcOutput CompileVectorAdd(const std::string& arch) {
    NvrtcInput input;
    input.name = "vector_add.cu";
    input.source = kVectorAdd;
    input.headers = {{"ops/vector_add_args.h", kVectorAddArgs},
                     {"ops/block.h", kBlock}};
    input.arch = arch;
    input.kernel = "kvforge_kernel";
    auto output = compiler_->Compile(input);
    EXPECT_TRUE(output.ok()) << output.status();
    return output.ok() ? *output : NvrtcOutput();
  }

  absl::StatusOr<std::unique_ptr<Module>> LoadVectorAdd() {
    const NvrtcOutput output =
        CompileVectorAdd(absl::StrCat("sm_", device_->compute_capability()));
    return Module::Load(device_, output.cubin, "kvforge_kernel",
                        kVectorAddSharedBytes);
  }

  // Buffers of a = i, b = 10 i and a poisoned sum.
  struct Vectors {
    DeviceBuffer a, b, sum;
    VectorAddArgs args;
  };
  Vectors MakeVectors(int count) {
    std::vector<float> a(count);
    std::iota(a.begin(), a.end(), 0.0f);
    std::vector<float> b(count);
    for (int i = 0; i < count; ++i) b[i] = 10 * a[i];
    Vectors v;
    v.a = *DeviceBuffer::FromHost(device_, a.data(), count * sizeof(float));
    v.b = *DeviceBuffer::FromHost(device_, b.data(), count * sizeof(float));
    v.sum = *DeviceBuffer::Allocate(device_, count * sizeof(float));
    EXPECT_TRUE(v.sum.Fill(0xff).ok());
    v.args = {static_cast<float*>(v.a.data()), static_cast<float*>(v.b.data()),
              static_cast<float*>(v.sum.data()), count};
    return v;
  }
  static int WrongSums(const Vectors& v) {
    std::vector<float> sum(v.args.count);
    EXPECT_TRUE(v.sum.CopyToHost(sum.data(), v.sum.bytes()).ok());
    int wrong = 0;
    for (size_t i = 0; i < sum.size(); ++i) {
      wrong += sum[i] != 11 * static_cast<float>(i);
    }
    return wrong;
  }
  static LaunchShape Shape(int count) {
    return {(count + kVectorAddBlockThreads - 1) / kVectorAddBlockThreads,
            kVectorAddBlockThreads, kVectorAddSharedBytes};
  }
  CuContext CurrentContext() const {
    CuContext context = nullptr;
    EXPECT_EQ(device_->api().CtxGetCurrent(&context), 0);
    return context;
  }

  DevicePtr device_;
  std::unique_ptr<NvrtcCompiler> compiler_;
};

TEST_F(CudaTest, TheDeviceHasNameAndLimits) {
  EXPECT_FALSE(device_->name().empty());
  EXPECT_GE(device_->compute_capability(), 75);
  EXPECT_GE(device_->limits().shared_bytes_opt_in, 48 * 1024);
  EXPECT_GE(device_->limits().shared_bytes_per_sm,
            device_->limits().shared_bytes_opt_in);
  EXPECT_GT(device_->limits().sm_count, 0);
  EXPECT_GT(device_->limits().memory_bytes, int64_t{1} << 30);
  const auto missing = Device::Open(1000);
  EXPECT_TRUE(absl::IsInvalidArgument(missing.status())) << missing.status();
}

TEST_F(CudaTest, AddsVectorsAndLeavesNoContextBehind) {
  ASSERT_EQ(CurrentContext(), nullptr);
  const auto module = LoadVectorAdd();
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ((*module)->shared_bytes(), kVectorAddSharedBytes);
  EXPECT_EQ((*module)->block_threads(), kVectorAddBlockThreads);
  for (const int count : {1, 128, 129, 100000}) {
    const Vectors v = MakeVectors(count);
    ASSERT_TRUE(
        (*module)->Launch(Shape(count), nullptr, &v.args, sizeof(v.args)).ok());
    ASSERT_TRUE(Synchronize(*device_, nullptr).ok());
    EXPECT_EQ(WrongSums(v), 0) << count;
  }
  EXPECT_GT(
      *(*module)->BlocksPerSm(kVectorAddBlockThreads, kVectorAddSharedBytes),
      1);
  EXPECT_EQ(CurrentContext(), nullptr);
}

TEST_F(CudaTest, WorksOnAnotherThreadAndUnderAnotherContext) {
  const auto module = LoadVectorAdd();
  ASSERT_TRUE(module.ok()) << module.status();
  const Vectors v = MakeVectors(1000);
  absl::Status launched = absl::UnknownError("not run");
  std::thread([&] {
    launched = (*module)->Launch(Shape(1000), nullptr, &v.args, sizeof(v.args));
  }).join();
  EXPECT_TRUE(launched.ok()) << launched;
  ASSERT_TRUE(Synchronize(*device_, nullptr).ok());
  EXPECT_EQ(WrongSums(v), 0);
  // The caller's own context, here the same one, is what it finds again.
  ASSERT_EQ(device_->api().CtxSetCurrent(device_->context()), 0);
  EXPECT_TRUE(
      (*module)->Launch(Shape(1000), nullptr, &v.args, sizeof(v.args)).ok());
  EXPECT_EQ(CurrentContext(), device_->context());
  ASSERT_EQ(device_->api().CtxSetCurrent(nullptr), 0);
  ASSERT_TRUE(Synchronize(*device_, nullptr).ok());
}

TEST_F(CudaTest, RunsFromACapturedGraph) {
  const auto module = LoadVectorAdd();
  ASSERT_TRUE(module.ok()) << module.status();
  Vectors v = MakeVectors(5000);
  auto stream = Stream::Create(device_);
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_FALSE(*IsCapturing(*device_, stream->get()));
  ASSERT_TRUE(stream->BeginCapture().ok());
  EXPECT_TRUE(*IsCapturing(*device_, stream->get()));
  ASSERT_TRUE((*module)
                  ->Launch(Shape(5000), stream->get(), &v.args, sizeof(v.args))
                  .ok());
  const auto graph = stream->EndCapture();
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (int replay = 0; replay < 2; ++replay) {
    ASSERT_TRUE(v.sum.Fill(0xff).ok());
    EXPECT_EQ(WrongSums(v), 5000);
    ASSERT_TRUE(graph->Launch(stream->get()).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_EQ(WrongSums(v), 0);
  }
}

TEST_F(CudaTest, OverlappingLaunchesSeeWhatTheOneAheadWrote) {
  if (device_->compute_capability() < 90) {
    GTEST_SKIP() << "launches overlap from sm_90 on";
  }
  NvrtcInput input;
  input.name = "count_up.cu";
  input.source = kCountUp;
  input.arch = absl::StrCat("sm_", device_->compute_capability());
  input.kernel = "kvforge_kernel";
  const auto output = compiler_->Compile(input);
  ASSERT_TRUE(output.ok()) << output.status();
  const auto module = Module::Load(device_, output->cubin, input.kernel, 0);
  ASSERT_TRUE(module.ok()) << module.status();
  const int zero = 0;
  const auto value = DeviceBuffer::FromHost(device_, &zero, sizeof(zero));
  ASSERT_TRUE(value.ok()) << value.status();
  const void* args = value->data();
  auto stream = Stream::Create(device_);
  ASSERT_TRUE(stream.ok()) << stream.status();
  constexpr int kLaunches = 100;
  const auto launch_all = [&] {
    for (int i = 0; i < kLaunches; ++i) {
      ASSERT_TRUE((*module)
                      ->Launch({1, 1, 0}, stream->get(), &args, sizeof(args))
                      .ok());
    }
  };
  launch_all();
  ASSERT_TRUE(stream->BeginCapture().ok());
  launch_all();
  const auto graph = stream->EndCapture();
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_TRUE(graph->Launch(stream->get()).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  int count = 0;
  ASSERT_TRUE(value->CopyToHost(&count, sizeof(count)).ok());
  EXPECT_EQ(count, 2 * kLaunches);
}

TEST_F(CudaTest, EventsMeasureTime) {
  const auto module = LoadVectorAdd();
  ASSERT_TRUE(module.ok()) << module.status();
  const Vectors v = MakeVectors(1 << 20);
  auto stream = Stream::Create(device_);
  auto start = Event::Create(device_);
  auto end = Event::Create(device_);
  ASSERT_TRUE(stream.ok() && start.ok() && end.ok());
  ASSERT_TRUE(start->Record(stream->get()).ok());
  ASSERT_TRUE(
      (*module)
          ->Launch(Shape(1 << 20), stream->get(), &v.args, sizeof(v.args))
          .ok());
  ASSERT_TRUE(end->Record(stream->get()).ok());
  ASSERT_TRUE(end->Synchronize().ok());
  const auto milliseconds = end->MillisecondsSince(*start);
  ASSERT_TRUE(milliseconds.ok()) << milliseconds.status();
  EXPECT_GT(*milliseconds, 0.0f);
  EXPECT_LT(*milliseconds, 1000.0f);
}

TEST_F(CudaTest, LaunchesOutOfRangeAreRefusedBeforeTheDriver) {
  const auto module = LoadVectorAdd();
  ASSERT_TRUE(module.ok()) << module.status();
  const VectorAddArgs args = {};
  const auto launch = [&](LaunchShape shape, size_t args_bytes) {
    return (*module)->Launch(shape, nullptr, &args, args_bytes);
  };
  EXPECT_TRUE(launch({0, 128, 0}, sizeof(args)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(launch({1, 128, 0}, sizeof(args) - 8)));
  EXPECT_TRUE(absl::IsInvalidArgument(
      launch({int64_t{1} << 31, 128, 0}, sizeof(args))));
  EXPECT_TRUE(absl::IsInvalidArgument(launch({1, 1025, 0}, sizeof(args))));
  EXPECT_TRUE(absl::IsInvalidArgument(
      launch({1, 128, kVectorAddSharedBytes + 1}, sizeof(args))));
}

TEST_F(CudaTest, CubinsThatDoNotFitTheDeviceAreNamedErrors) {
  const bool hopper = device_->compute_capability() / 10 == 9;
  const NvrtcOutput foreign = CompileVectorAdd(hopper ? "sm_80" : "sm_90");
  const auto wrong_gpu =
      Module::Load(device_, foreign.cubin, "kvforge_kernel", 0);
  ASSERT_TRUE(absl::IsFailedPrecondition(wrong_gpu.status()))
      << wrong_gpu.status();
  EXPECT_THAT(std::string(wrong_gpu.status().message()),
              HasSubstr(hopper ? "built for sm_80" : "built for sm_90"));

  const NvrtcOutput own =
      CompileVectorAdd(absl::StrCat("sm_", device_->compute_capability()));
  const int limit = device_->limits().shared_bytes_opt_in;
  EXPECT_TRUE(Module::Load(device_, own.cubin, "kvforge_kernel", limit).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(
      Module::Load(device_, own.cubin, "kvforge_kernel", limit + 1).status()));
  EXPECT_TRUE(
      absl::IsNotFound(Module::Load(device_, own.cubin, "other", 0).status()));
  EXPECT_TRUE(absl::IsDataLoss(
      Module::Load(device_, own.cubin.substr(0, own.cubin.size() / 2),
                   "kvforge_kernel", 0)
          .status()));
}

TEST_F(CudaTest, BuffersCheckTheirRange) {
  auto buffer = DeviceBuffer::Allocate(device_, 16);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  char bytes[32] = {};
  EXPECT_TRUE(buffer->CopyFromHost(bytes, 8, 8).ok());
  EXPECT_TRUE(absl::IsOutOfRange(buffer->CopyFromHost(bytes, 8, 9)));
  EXPECT_TRUE(absl::IsOutOfRange(buffer->CopyToHost(bytes, 17)));
  EXPECT_TRUE(absl::IsOutOfRange(buffer->CopyToHost(bytes, 1, SIZE_MAX)));
  const auto all = DeviceBuffer::Allocate(device_, size_t{1} << 50);
  EXPECT_TRUE(absl::IsResourceExhausted(all.status())) << all.status();
  const auto none = DeviceBuffer::Allocate(device_, 0);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->address(), 0u);
}

}  // namespace
}  // namespace kvforge
