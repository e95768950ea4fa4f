// What the search calls: candidates of one SPEC at one shape on an engine's
// target. On a GPU they are timed; on the CPU only compiled and checked, since
// a time of the CPU says nothing about a GPU.
#ifndef KVFORGE_TOOLS_TUNE_CANDIDATE_RUNNER_H_
#define KVFORGE_TOOLS_TUNE_CANDIDATE_RUNNER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/engine.h"
#include "runtime/tune/search.h"
#include "runtime/tune/shape.h"
#include "tools/bench/timing.h"
#include "tools/tune/candidate_check.h"
#include "tools/tune/timing_problem.h"

namespace kvforge::tune {

class CandidateRunner {
 public:
  // The engine outlives the result. `timed` needs a GPU.
  static absl::StatusOr<std::unique_ptr<CandidateRunner>> Create(
      Engine& engine, const KernelSpec& spec, const TuneShape& shape,
      bool timed);

  // Calls this object, which outlives the result.
  TuneRunner Runner();

 private:
  struct Loaded {
    std::shared_ptr<const PreparedKernel> kernel;
    CandidateParts parts;
  };

  CandidateRunner(Engine& engine, const KernelSpec& spec)
      : engine_(engine), spec_(spec) {}
  absl::StatusOr<CompiledFacts> Prepare(const std::string& candidate);
  absl::Status Check();
  absl::StatusOr<TuneTiming> Time();

  Engine& engine_;
  const KernelSpec spec_;
  std::unique_ptr<CandidateCheck> check_;
  std::unique_ptr<TimingProblem> problem_;  // null where nothing is timed
  std::optional<bench::Timer> timer_;
  Loaded loaded_;  // the candidate that Prepare was last called with
};

}  // namespace kvforge::tune

#endif  // KVFORGE_TOOLS_TUNE_CANDIDATE_RUNNER_H_
