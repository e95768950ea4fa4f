// What a run call costs the calling thread, beside a bare cuLaunchKernel of the
// same kernel.
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/extend.h"
#include "kernels/store.h"
#include "runtime/base/status_macros.h"
#include "runtime/cuda/device.h"
#include "tools/bench/attention_problem.h"
#include "tools/bench/decode_call.h"
#include "tools/bench/runners.h"
#include "tools/bench/store_problem.h"

namespace kvforge::bench {
namespace {

// Fewer in a row than a stream takes before a launch waits for the GPU.
constexpr int kLaunches = 200;
constexpr int kBursts = 25;

constexpr int kCaptureModeThreadLocal = 1;  // of CUstreamCaptureMode

// Host time of `launch`, the GPU idle before each burst.
absl::StatusOr<Summary> HostMicroseconds(
    const Engine& engine, CuStream stream,
    const std::function<absl::Status()>& launch) {
  std::vector<double> samples;
  for (int burst = 0; burst <= kBursts; ++burst) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kLaunches; ++i) RETURN_IF_ERROR(launch());
    const auto end = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(SynchronizeTarget(engine, stream));
    if (burst == 0) continue;  // warms up
    samples.push_back(
        std::chrono::duration<double, std::micro>(end - start).count() /
        kLaunches);
  }
  return Summarise(std::move(samples));
}

// The launch that a run call makes, made again through the driver alone: the
// same kernel, grid and arguments.
class BareLaunch {
 public:
  // `run` queues one kernel on `stream`, which records it instead.
  static absl::StatusOr<std::unique_ptr<BareLaunch>> Record(
      DevicePtr device, CuStream stream,
      const std::function<absl::Status()>& run) {
    const ScopedContext context(*device);
    RETURN_IF_ERROR(context.status());
    const DriverApi& api = device->api();
    std::unique_ptr<BareLaunch> bare(new BareLaunch(device, stream));
    RETURN_IF_ERROR(
        api.Check(api.StreamBeginCapture(stream, kCaptureModeThreadLocal),
                  "cuStreamBeginCapture"));
    const absl::Status queued = run();
    RETURN_IF_ERROR(api.Check(api.StreamEndCapture(stream, &bare->graph_),
                              "cuStreamEndCapture"));
    RETURN_IF_ERROR(queued);
    CuGraphNode node = nullptr;
    size_t num_nodes = 1;
    RETURN_IF_ERROR(api.Check(
        api.GraphGetNodes(bare->graph_, &node, &num_nodes), "cuGraphGetNodes"));
    RETURN_IF_ERROR(
        api.Check(api.GraphKernelNodeGetParams(node, &bare->params_),
                  "cuGraphKernelNodeGetParams"));
    if (bare->params_.function == nullptr) {
      RETURN_IF_ERROR(api.Check(
          api.KernelGetFunction(&bare->params_.function, bare->params_.kernel),
          "cuKernelGetFunction"));
    }
    return bare;
  }

  ~BareLaunch() {
    const ScopedContext context(*device_);
    if (graph_ != nullptr && context.status().ok()) {
      device_->api().GraphDestroy(graph_);
    }
  }

  // A context of the device is current.
  absl::Status Run() const {
    const CuKernelNodeParams& p = params_;
    const DriverApi& api = device_->api();
    return api.Check(
        api.LaunchKernel(p.function, p.grid[0], p.grid[1], p.grid[2],
                         p.block[0], p.block[1], p.block[2], p.shared_bytes,
                         stream_, p.parameters, p.extra),
        "cuLaunchKernel");
  }

 private:
  BareLaunch(DevicePtr device, CuStream stream)
      : device_(std::move(device)), stream_(stream) {}

  DevicePtr device_;
  CuStream stream_;
  CuGraph graph_ = nullptr;  // owns what params_ points to
  CuKernelNodeParams params_ = {};
};

// Fills in the times of a run call and of its bare launch.
absl::Status Measure(GpuRun& run, const std::function<absl::Status()>& call,
                     CaseResult& result) {
  const ScopedContext context(*run.engine.device());
  RETURN_IF_ERROR(context.status());
  const CuStream stream = run.timer.stream();
  ASSIGN_OR_RETURN(const std::unique_ptr<BareLaunch> bare,
                   BareLaunch::Record(run.engine.device(), stream, call));
  ASSIGN_OR_RETURN(result.row, HostMicroseconds(run.engine, stream,
                                                [&] { return bare->Run(); }));
  ASSIGN_OR_RETURN(result.one, HostMicroseconds(run.engine, stream, call));
  return absl::OkStatus();
}

absl::Status MeasureStore(GpuRun& run, const BenchCase& what,
                          CaseResult& result) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedKernel> kernel,
                   run.engine.Prepare(what.Spec()));
  ASSIGN_OR_RETURN(const std::unique_ptr<StoreProblem> problem,
                   StoreProblem::Create(run.engine, what, 0));
  const StoreArgs args = problem->Args(0);
  return Measure(
      run, [&] { return RunStore(*kernel, args, run.timer.stream()); }, result);
}

absl::Status MeasureAttention(GpuRun& run, const BenchCase& what,
                              CaseResult& result) {
  ASSIGN_OR_RETURN(const CachePool* pool, run.pools.Get(what));
  ASSIGN_OR_RETURN(const std::unique_ptr<AttentionProblem> problem,
                   AttentionProblem::Create(run.engine, *pool, what));
  const AttentionArgs args = problem->Args(0);
  if (what.kernel == KernelKind::kDecode) {
    ASSIGN_OR_RETURN(const DecodeCall call,
                     DecodeCall::Create(run.engine, what, run.grid, run.tile));
    return Measure(
        run, [&] { return call.Run(args, run.timer.stream()); }, result);
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedKernel> kernel,
                   run.engine.Prepare(what.Spec()));
  const ExtendParams params = {args, what.num_q_heads()};
  return Measure(
      run, [&] { return RunExtend(*kernel, params, run.timer.stream()); },
      result);
}

}  // namespace

absl::StatusOr<CaseResult> RunLaunchCase(GpuRun& run, const BenchCase& what) {
  CaseResult result;
  result.name = what.Name();
  RETURN_IF_ERROR(what.kernel == KernelKind::kStore
                      ? MeasureStore(run, what, result)
                      : MeasureAttention(run, what, result));
  result.detail = absl::StrFormat("%.2f us over a bare launch",
                                  result.one.median - result.row.median);
  return result;
}

}  // namespace kvforge::bench
