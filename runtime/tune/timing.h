// What the tuner knows of one candidate, and how a winner is chosen from that.
// Plain data: SPECs and candidates are text here.
//
// A candidate is a tile and, for decode, perhaps a grid other than the
// library's: "8x128/4/8", "8x128/4/8 grid=264x4" (blocks x kv heads a block).
#ifndef KVFORGE_RUNTIME_TUNE_TIMING_H_
#define KVFORGE_RUNTIME_TUNE_TIMING_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvforge {

// Launches in a row on a GPU; never of the CPU.
struct TuneTiming {
  double median_us = 0;
  double spread = 0;  // distance of the quartiles divided by the median
  int samples = 0;

  bool operator==(const TuneTiming&) const = default;
};

enum class TuneVerdict {
  kTimed,    // right, and `timing` says how fast
  kChecked,  // right, and not timed: on the CPU; never stored
  kSpills,   // local memory in the compiled kernel: not timed
  kWrong,    // its result is not the reference's: not timed
  kFailed,   // did not compile, load, launch or end
};
absl::string_view VerdictName(TuneVerdict verdict);  // "timed"
absl::StatusOr<TuneVerdict> ParseVerdict(absl::string_view name);

struct TuneKey {
  std::string device;  // DeviceFingerprint
  std::string spec;    // canonical SPEC
  std::string shape;   // TuneShape::Text() of the bucket
  std::string candidate;
  std::string version;  // digest of the kernel's cache key

  auto operator<=>(const TuneKey&) const = default;
};

struct TuneRecord {
  TuneKey key;
  std::string gpu;  // "sm_90": whose kernel it is
  TuneVerdict verdict = TuneVerdict::kFailed;
  std::string note;   // why it was not timed
  TuneTiming timing;  // kTimed only
  int registers = 0;  // a thread
  int shared_bytes = 0;
  int spill_bytes = 0;
  std::string measured_at;  // UTC

  bool operator==(const TuneRecord&) const = default;
};

struct CandidateParts {
  std::string tile;
  int blocks = 0;           // of the grid; 0 = the library's grid
  int heads_per_block = 0;  // likewise
};
std::string CandidateText(const CandidateParts& parts);
absl::StatusOr<CandidateParts> ParseCandidate(absl::string_view text);

// The smallest median of those that were timed; of equal ones the first text.
// The same records in any order give the same answer.
std::optional<TuneRecord> ChooseFastest(const std::vector<TuneRecord>& records);

// For a launch whose shape is not known: of the tiles that were timed with the
// library's grid in every shape that `records` have, the one with the smallest
// mean of (its median / the shape's smallest); of equal ones the first text.
// The records are of one device and SPEC.
std::optional<TuneRecord> ChooseForAnyShape(
    const std::vector<TuneRecord>& records);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_TUNE_TIMING_H_
