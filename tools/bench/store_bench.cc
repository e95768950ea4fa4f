// store into a paged cache.
#include "kernels/store.h"

#include "runtime/base/status_macros.h"
#include "runtime/cuda/device.h"
#include "tools/bench/runners.h"
#include "tools/bench/store_problem.h"

namespace kvforge::bench {
namespace {

constexpr int64_t kCaches = 4;  // sets of slots cover so many L2 caches

}  // namespace

absl::StatusOr<CaseResult> RunStoreCase(GpuRun& run, const BenchCase& what) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedKernel> kernel,
                   run.engine.Prepare(what.Spec()));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<StoreProblem> problem,
      StoreProblem::Create(run.engine, what,
                           kCaches * run.engine.device()->limits().l2_bytes));
  const auto launch = [&](int64_t index, CuStream stream) {
    return RunStore(*kernel, problem->Args(index), stream);
  };
  CaseResult result = ResultFor(what, kernel->facts());
  RETURN_IF_ERROR(launch(0, nullptr));
  RETURN_IF_ERROR(SynchronizeTarget(run.engine, nullptr));
  ASSIGN_OR_RETURN(result.accuracy, problem->WrongPart());
  RETURN_IF_ERROR(CheckAccuracy(result));
  ASSIGN_OR_RETURN(const Timing timing,
                   run.timer.Measure(launch, result.bytes));
  result.one = timing.one;
  result.row = timing.row;
  return result;
}

}  // namespace kvforge::bench
