// decode over a paged pool of known contents.
#include "runtime/base/status_macros.h"
#include "tools/bench/attention_problem.h"
#include "tools/bench/decode_call.h"
#include "tools/bench/runners.h"

namespace kvforge::bench {

absl::StatusOr<CaseResult> RunDecodeCase(GpuRun& run, const BenchCase& what) {
  ASSIGN_OR_RETURN(const DecodeCall call,
                   DecodeCall::Create(run.engine, what, run.grid, run.tile));
  ASSIGN_OR_RETURN(const CachePool* pool, run.pools.Get(what));
  ASSIGN_OR_RETURN(const std::unique_ptr<AttentionProblem> problem,
                   AttentionProblem::Create(run.engine, *pool, what));
  CaseResult result = ResultFor(what, call.kernel().facts());
  result.detail = call.Detail();
  RETURN_IF_ERROR(problem->PoisonOut());
  RETURN_IF_ERROR(call.Run(problem->Args(0), nullptr));
  RETURN_IF_ERROR(SynchronizeTarget(run.engine, nullptr));
  ASSIGN_OR_RETURN(result.accuracy, problem->SampledError());
  RETURN_IF_ERROR(CheckAccuracy(result));
  ASSIGN_OR_RETURN(const Timing timing,
                   run.timer.Measure(
                       [&](int64_t index, CuStream stream) {
                         return call.Run(problem->Args(index), stream);
                       },
                       result.bytes));
  result.one = timing.one;
  result.row = timing.row;
  return result;
}

}  // namespace kvforge::bench
