#include "tools/tune/candidate_runner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/tile/memory_model.h"
#include "compiler/tile/tile_selector.h"
#include "runtime/base/status_macros.h"
#include "runtime/cuda/device.h"
#include "tools/tune/attention_run.h"

namespace kvforge::tune {
namespace {

constexpr int kHostKvHeads = 2;  // a case of milliseconds on the CPU

}  // namespace

absl::StatusOr<std::unique_ptr<CandidateRunner>> CandidateRunner::Create(
    Engine& engine, const KernelSpec& spec, const TuneShape& shape,
    bool timed) {
  if (timed && engine.device() == nullptr) {
    return absl::FailedPreconditionError(
        "tune: the CPU runs a GPU's text, and its times say nothing about one; "
        "--target host checks candidates; add --check-only, or tune on a GPU "
        "with --device N");
  }
  std::unique_ptr<CandidateRunner> runner(new CandidateRunner(engine, spec));
  const bool on_gpu = engine.device() != nullptr;
  ASSIGN_OR_RETURN(
      runner->check_,
      CandidateCheck::Create(engine, spec,
                             on_gpu ? shape.num_kv_heads : kHostKvHeads));
  if (!timed) return runner;
  ASSIGN_OR_RETURN(runner->problem_,
                   TimingProblem::Create(engine, spec, shape,
                                         engine.device()->limits().l2_bytes));
  ASSIGN_OR_RETURN(bench::Timer timer, bench::Timer::Create(engine.device()));
  runner->timer_.emplace(std::move(timer));
  return runner;
}

absl::StatusOr<CompiledFacts> CandidateRunner::Prepare(
    const std::string& candidate) {
  ASSIGN_OR_RETURN(loaded_.parts, ParseCandidate(candidate));
  ASSIGN_OR_RETURN(const Tile tile, ParseTile(loaded_.parts.tile));
  RETURN_IF_ERROR(CheckTile(spec_, tile, engine_.gpu()));
  ASSIGN_OR_RETURN(loaded_.kernel, engine_.Prepare(spec_, tile));
  LaunchFacts facts = loaded_.kernel->facts();
  if (engine_.device() == nullptr) {
    // Registers and spills are the GPU's; without NVRTC they stay unknown.
    const auto compiled = engine_.Compile(spec_, tile, engine_.gpu(), "cuda");
    if (compiled.ok()) {
      facts = (*compiled)->facts;
    } else if (!absl::IsUnavailable(compiled.status())) {
      return compiled.status();
    }
  }
  const int model_bytes = SharedBytes(spec_, tile);
  const int shared_bytes =
      facts.static_shared_bytes + facts.dynamic_shared_bytes;
  if (shared_bytes != model_bytes) {
    return absl::InternalError(absl::StrCat("the kernel takes ", shared_bytes,
                                            " shared bytes, the model says ",
                                            model_bytes));
  }
  return CompiledFacts{facts.registers, shared_bytes, facts.spill_bytes};
}

absl::Status CandidateRunner::Check() {
  RETURN_IF_ERROR(check_->Check(*loaded_.kernel, loaded_.parts));
  if (problem_ == nullptr) return absl::OkStatus();
  // Once at the size that is timed, for its red zones.
  const AttentionArgs args = problem_->Args(0);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<AttentionRun> run,
      AttentionRun::Create(engine_, *loaded_.kernel, loaded_.parts, args));
  return run->RunOnce(args);
}

absl::StatusOr<TuneTiming> CandidateRunner::Time() {
  ASSIGN_OR_RETURN(const std::unique_ptr<AttentionRun> run,
                   AttentionRun::Create(engine_, *loaded_.kernel, loaded_.parts,
                                        problem_->Args(0)));
  ASSIGN_OR_RETURN(const bench::Timing timing,
                   timer_->Measure(
                       [&](int64_t index, CuStream stream) {
                         return run->Queue(problem_->Args(index), stream);
                       },
                       problem_->launch_bytes()));
  return TuneTiming{timing.row.median, timing.row.spread, timing.row.samples};
}

TuneRunner CandidateRunner::Runner() {
  TuneRunner runner;
  runner.prepare = [this](const std::string& text) { return Prepare(text); };
  runner.check = [this](const std::string&) { return Check(); };
  if (problem_ != nullptr) {
    runner.time = [this](const std::string&) { return Time(); };
  }
  runner.healthy = [this] { return SynchronizeTarget(engine_, nullptr); };
  return runner;
}

}  // namespace kvforge::tune
