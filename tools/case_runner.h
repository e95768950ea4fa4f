// Runs a case on an engine: stores its rows into a poisoned cache of some
// layout, compares every byte, then attends over it with extend and decode and
// compares with the case's answers.
#ifndef KVFORGE_TOOLS_CASE_RUNNER_H_
#define KVFORGE_TOOLS_CASE_RUNNER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/engine.h"
#include "tools/attention_case.h"
#include "tools/paged_cache.h"
#include "tools/tolerance.h"

namespace kvforge {

// One kernel in one layout.
struct KernelResult {
  std::string kernel;  // "store", "extend", "decode", "decode/splits=4"
  std::string layout;
  absl::Status status;   // of preparing, launching or comparing
  bool refused = false;  // status names something that is not served
  ErrorReport errors;    // attention kernels
  double run_ms = 0;     // launches and waiting, on the host's clock

  bool failed() const { return !status.ok() && !refused; }
};

struct CaseRun {
  std::vector<KernelResult> results;
  // True if the store or extend is not served: the case says nothing then.
  bool refused = false;
  bool failed = false;
};

// Runs in kCaseLayouts[first_layout] and the `layouts - 1` after it,
// cyclically; the store in all of them. `other_tiles`: extend also in
// tiles of other kinds than the selector's (OtherExtendTiles).
CaseRun RunCase(Engine& engine, const AttentionCase& problem, int first_layout,
                int layouts, bool other_tiles = false);

// Whether the status of preparing a valid SPEC refuses by name what was asked
// for, as against a defect or a wrong setting.
bool IsRefusal(const absl::Status& status);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_CASE_RUNNER_H_
