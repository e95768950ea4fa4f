// Every arch function on a GPU gives what it gives on the host target: both are
// held to the same references, bit for bit where a case states no bound.
#include <gtest/gtest.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compiler/target/target.h"
#include "runtime/base/knobs.h"
#include "runtime/base/status_macros.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/module.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "runtime/cuda/stream.h"
#include "tests/arch/micro_cases.h"

namespace kvforge {
namespace {

class MicroGpu : public ::testing::TestWithParam<MicroCase> {
 protected:
  void SetUp() override {
    auto device = Device::Open(0);
    if (absl::IsUnavailable(device.status()))
      GTEST_SKIP() << "a micro-kernel did not run: " << device.status();
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *device;
    auto compiler = NvrtcCompiler::Open(Knobs());
    if (absl::IsUnavailable(compiler.status())) {
      GTEST_SKIP() << "a micro-kernel did not run: " << compiler.status();
    }
    ASSERT_TRUE(compiler.ok()) << compiler.status();
    compiler_ = *std::move(compiler);
    if (device_->compute_capability() < GetParam().min_compute_capability ||
        device_->compute_capability() > GetParam().max_compute_capability) {
      GTEST_SKIP() << "a micro-kernel did not run: " << device_->name()
                   << " has no such instruction";
    }
  }

  // The output words of a run.
  absl::StatusOr<std::vector<uint32_t>> RunCase(const MicroCase& micro) {
    NvrtcInput input;
    input.name = micro.file + ".cu";
    input.source = MicroText(micro);
    for (auto& [path, text] : MicroIncludes()) {
      input.headers.push_back({path, text});
    }
    input.arch = std::string(
        TargetForComputeCapability(device_->compute_capability()).nvrtc_arch);
    input.kernel = "kvforge_kernel";
    ASSIGN_OR_RETURN(const NvrtcOutput output, compiler_->Compile(input));
    ASSIGN_OR_RETURN(
        const std::unique_ptr<Module> module,
        Module::Load(device_, output.cubin, input.kernel, output.shared_bytes));
    const std::vector<uint32_t> unwritten(micro.expected.size(),
                                          kMicroUnwritten);
    const size_t out_bytes = unwritten.size() * sizeof(uint32_t);
    ASSIGN_OR_RETURN(
        const DeviceBuffer in,
        DeviceBuffer::FromHost(device_, micro.in.data(), micro.in.size() * 4));
    ASSIGN_OR_RETURN(
        const DeviceBuffer out,
        DeviceBuffer::FromHost(device_, unwritten.data(), out_bytes));
    MicroArgs args = {static_cast<const unsigned*>(in.data()),
                      static_cast<unsigned*>(out.data()),
                      micro.n,
                      {}};
    if (micro.box) {
      TensorBox box = *micro.box;
      box.base = in.data();
      const ScopedContext context(*device_);
      RETURN_IF_ERROR(context.status());
      RETURN_IF_ERROR(EncodeTensorMap(device_->api(), box, args.map));
    }
    LaunchShape shape;
    shape.grid_blocks = micro.grid_blocks;
    shape.block_threads = output.block_threads;
    shape.dynamic_shared_bytes = output.shared_bytes;
    ASSIGN_OR_RETURN(const Stream stream, Stream::Create(device_));
    RETURN_IF_ERROR(module->Launch(shape, stream.get(), &args, sizeof(args)));
    RETURN_IF_ERROR(stream.Synchronize());
    std::vector<uint32_t> words(unwritten.size());
    RETURN_IF_ERROR(out.CopyToHost(words.data(), out_bytes));
    return words;
  }

  DevicePtr device_;
  std::unique_ptr<NvrtcCompiler> compiler_;
};

TEST_P(MicroGpu, GivesTheReference) {
  const absl::StatusOr<std::vector<uint32_t>> out = RunCase(GetParam());
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(MicroMismatches(GetParam(), *out), "");
}

INSTANTIATE_TEST_SUITE_P(Cases, MicroGpu, ::testing::ValuesIn(MicroCases()),
                         [](const ::testing::TestParamInfo<MicroCase>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace kvforge
