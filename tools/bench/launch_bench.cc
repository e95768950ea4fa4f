// What a run call costs the calling thread, beside a bare cuLaunchKernel.
#include <chrono>
#include <functional>
#include <memory>

#include "absl/strings/str_cat.h"
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

// The store kernel launched through the driver alone. Of one token whose slot
// is negative: its source rows are read, but of the cache no argument is looked
// at.
class BareStore {
 public:
  static absl::StatusOr<std::unique_ptr<BareStore>> Load(Engine& engine) {
    const KvFormat& format = **FindFormat("e4m3_row");
    ASSIGN_OR_RETURN(
        const std::shared_ptr<const Entry> entry,
        engine.Compile(FillSpec(format, 128), engine.gpu(), "cuda"));
    const ScopedContext context(*engine.device());
    RETURN_IF_ERROR(context.status());
    const DriverApi& api = engine.device()->api();
    std::unique_ptr<BareStore> bare(new BareStore(engine.device()));
    RETURN_IF_ERROR(
        api.Check(api.LibraryLoadData(&bare->library_, entry->payload.data(),
                                      nullptr, nullptr, 0, nullptr, nullptr, 0),
                  "cuLibraryLoadData"));
    CuKernel handle = nullptr;
    RETURN_IF_ERROR(api.Check(
        api.LibraryGetKernel(&handle, bare->library_, entry->symbol.c_str()),
        "cuLibraryGetKernel"));
    RETURN_IF_ERROR(api.Check(api.KernelGetFunction(&bare->function_, handle),
                              "cuKernelGetFunction"));
    bare->threads_ = static_cast<unsigned>(entry->facts.block_threads);
    bare->shared_ = static_cast<unsigned>(entry->facts.dynamic_shared_bytes);
    const int64_t slot = -1;
    ASSIGN_OR_RETURN(bare->slot_, TargetBuffer::FromHost(engine, &slot, 8));
    constexpr int kHeadDim = 128;
    constexpr int kRowBytes = kHeadDim * 2;
    ASSIGN_OR_RETURN(bare->source_,
                     TargetBuffer::Allocate(engine, kKvHeads * kRowBytes));
    RETURN_IF_ERROR(bare->source_.Fill(0));
    bare->args_.k_src = {bare->source_.as<const unsigned char>(),
                         kKvHeads * kRowBytes, kRowBytes};
    bare->args_.k_src.access_bytes = 16;
    bare->args_.v_src = bare->args_.k_src;
    bare->args_.slots = bare->slot_.as<const long long>();
    bare->args_.num_slots = 1;
    bare->args_.num_tokens = 1;
    bare->args_.num_kv_heads = kKvHeads;
    return bare;
  }

  ~BareStore() {
    const ScopedContext context(*device_);
    if (library_ != nullptr && context.status().ok()) {
      device_->api().LibraryUnload(library_);
    }
  }

  absl::StatusOr<Summary> Measure(const Engine& engine, CuStream stream) {
    const ScopedContext context(*device_);
    RETURN_IF_ERROR(context.status());
    const DriverApi& api = device_->api();
    void* parameters[] = {&args_};
    return HostMicroseconds(engine, stream, [&]() -> absl::Status {
      return api.Check(api.LaunchKernel(function_, 2, 1, 1, threads_, 1, 1,
                                        shared_, stream, parameters, nullptr),
                       "cuLaunchKernel");
    });
  }

 private:
  explicit BareStore(DevicePtr device) : device_(std::move(device)) {}

  DevicePtr device_;
  CuLibrary library_ = nullptr;
  CuFunction function_ = nullptr;
  unsigned threads_ = 0;
  unsigned shared_ = 0;
  StoreArgs args_ = {};
  TargetBuffer slot_, source_;
};

absl::StatusOr<Summary> MeasureStore(GpuRun& run, const BenchCase& what) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedKernel> kernel,
                   run.engine.Prepare(what.Spec()));
  ASSIGN_OR_RETURN(const std::unique_ptr<StoreProblem> problem,
                   StoreProblem::Create(run.engine, what, 0));
  const StoreArgs args = problem->Args(0);
  return HostMicroseconds(run.engine, run.timer.stream(), [&] {
    return RunStore(*kernel, args, run.timer.stream());
  });
}

absl::StatusOr<Summary> MeasureAttention(GpuRun& run, const BenchCase& what) {
  ASSIGN_OR_RETURN(const CachePool* pool, run.pools.Get(what));
  ASSIGN_OR_RETURN(const std::unique_ptr<AttentionProblem> problem,
                   AttentionProblem::Create(run.engine, *pool, what));
  const AttentionArgs args = problem->Args(0);
  if (what.kernel == KernelKind::kDecode) {
    ASSIGN_OR_RETURN(const DecodeCall call,
                     DecodeCall::Create(run.engine, what, run.grid, run.tile));
    return HostMicroseconds(run.engine, run.timer.stream(),
                            [&] { return call.Run(args, run.timer.stream()); });
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedKernel> kernel,
                   run.engine.Prepare(what.Spec()));
  return HostMicroseconds(run.engine, run.timer.stream(), [&] {
    return RunExtend(*kernel, {args, what.num_q_heads()}, run.timer.stream());
  });
}

}  // namespace

absl::StatusOr<CaseResult> RunLaunchCase(GpuRun& run, const BenchCase& what) {
  CaseResult result;
  result.name = what.Name();
  ASSIGN_OR_RETURN(const std::unique_ptr<BareStore> bare,
                   BareStore::Load(run.engine));
  ASSIGN_OR_RETURN(result.row, bare->Measure(run.engine, run.timer.stream()));
  if (what.kernel == KernelKind::kStore) {
    ASSIGN_OR_RETURN(result.one, MeasureStore(run, what));
  } else {
    ASSIGN_OR_RETURN(result.one, MeasureAttention(run, what));
  }
  result.detail = absl::StrFormat("%.2f us over a bare launch",
                                  result.one.median - result.row.median);
  return result;
}

}  // namespace kvforge::bench
