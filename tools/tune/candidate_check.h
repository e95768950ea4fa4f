// Whether a candidate computes what the float64 reference says: two small
// ragged cases of the SPEC with all its features, every row compared, the
// outputs between red zones. The values of one are normal; the scores of the
// other rise along the keys, so that each tile passes the maximum of those
// before.
#ifndef KVFORGE_TOOLS_TUNE_CANDIDATE_CHECK_H_
#define KVFORGE_TOOLS_TUNE_CANDIDATE_CHECK_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/engine.h"
#include "runtime/tune/shape.h"
#include "runtime/tune/timing.h"
#include "tools/attention_case.h"
#include "tools/case_generator.h"
#include "tools/case_on_target.h"

namespace kvforge::tune {

// A case of a decode or extend SPEC with the cached lengths and query lengths
// given. kUnimplemented for a score function, whose reference is not known.
absl::StatusOr<CaseOptions> CaseFor(const KernelSpec& spec, int num_kv_heads);

class CandidateCheck {
 public:
  // Makes the cases and stores their rows; compiles the store kernel. The
  // engine outlives the result.
  static absl::StatusOr<std::unique_ptr<CandidateCheck>> Create(
      Engine& engine, const KernelSpec& spec, int num_kv_heads);

  // kDataLoss says what is wrong where.
  absl::Status Check(const PreparedKernel& kernel, const CandidateParts& parts);

 private:
  struct StoredCase {
    AttentionCase problem;
    std::unique_ptr<CaseOnTarget> target;  // refers to `problem`
  };

  explicit CandidateCheck(const Engine& engine) : engine_(engine) {}
  absl::Status CheckCase(const StoredCase& stored, const PreparedKernel& kernel,
                         const CandidateParts& parts);

  const Engine& engine_;
  std::vector<std::unique_ptr<StoredCase>> cases_;
};

}  // namespace kvforge::tune

#endif  // KVFORGE_TOOLS_TUNE_CANDIDATE_CHECK_H_
