// extend over a paged pool of known contents.
#include "kernels/extend.h"

#include "runtime/base/status_macros.h"
#include "tools/bench/attention_problem.h"
#include "tools/bench/runners.h"

namespace kvforge::bench {

absl::StatusOr<CaseResult> RunExtendCase(GpuRun& run, const BenchCase& what) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedKernel> kernel,
                   run.tile ? run.engine.Prepare(what.Spec(), *run.tile)
                            : run.engine.Prepare(what.Spec()));
  ASSIGN_OR_RETURN(const CachePool* pool, run.pools.Get(what));
  ASSIGN_OR_RETURN(const std::unique_ptr<AttentionProblem> problem,
                   AttentionProblem::Create(run.engine, *pool, what));
  ExtendParams params = {{}, what.num_q_heads()};
  params.workspace_bytes =
      ExtendWorkspaceBytes(*kernel, {what.batch, kKvHeads, what.KvTokens()});
  ASSIGN_OR_RETURN(
      const TargetBuffer workspace,
      TargetBuffer::Allocate(run.engine, params.workspace_bytes, 128));
  params.workspace = workspace.data();
  const auto launch = [&](int64_t index, CuStream stream) {
    ExtendParams of_launch = params;
    of_launch.args = problem->Args(index);
    return RunExtend(*kernel, of_launch, stream);
  };
  CaseResult result = ResultFor(what, kernel->facts());
  RETURN_IF_ERROR(problem->PoisonOut());
  RETURN_IF_ERROR(launch(0, nullptr));
  RETURN_IF_ERROR(SynchronizeTarget(run.engine, nullptr));
  ASSIGN_OR_RETURN(result.accuracy, problem->SampledError());
  RETURN_IF_ERROR(CheckAccuracy(result));
  ASSIGN_OR_RETURN(const Timing timing,
                   run.timer.Measure(launch, result.bytes));
  result.one = timing.one;
  result.row = timing.row;
  return result;
}

}  // namespace kvforge::bench
