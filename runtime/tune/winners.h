// The tiles that won, as a small JSON file: what is shipped and what an engine
// reads. `kvforge tune --export` writes it from a tuning table (store.h).
#ifndef KVFORGE_RUNTIME_TUNE_WINNERS_H_
#define KVFORGE_RUNTIME_TUNE_WINNERS_H_

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tune/timing.h"

namespace kvforge {

struct Winner {
  std::string device;     // fingerprint
  std::string gpu;        // "sm_90"
  std::string spec;       // canonical SPEC
  std::string shape;      // bucket; "" = launches of any shape
  std::string candidate;  // tile, perhaps with a grid
  std::string version;    // digest of the kernel's cache key
  double median_us = 0;   // for people
  double spread = 0;

  bool operator==(const Winner&) const = default;
};

// Immutable once read; thread safe.
class Winners {
 public:
  Winners() = default;
  explicit Winners(std::vector<Winner> winners);

  // kNotFound for a missing file, kInvalidArgument for one of another form; a
  // tuning table itself is named as such.
  static absl::StatusOr<Winners> Read(const std::string& path);
  // The same winners give the same bytes.
  std::string ToJson() const;

  // Null where the device, SPEC and shape have none.
  const Winner* Find(absl::string_view device, absl::string_view spec,
                     absl::string_view shape) const;
  // Of every device of a GPU's kind, each tile once, for priming.
  std::vector<std::string> TilesFor(absl::string_view gpu,
                                    absl::string_view spec) const;
  const std::map<std::tuple<std::string, std::string, std::string>, Winner>&
  all() const {
    return winners_;
  }

 private:
  // By device, SPEC, shape.
  std::map<std::tuple<std::string, std::string, std::string>, Winner> winners_;
};

// For each device, SPEC and shape of `records` the fastest, and for each device
// and SPEC the tile for any shape. Deterministic, whatever the order.
Winners WinnersOf(const std::vector<TuneRecord>& records);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_TUNE_WINNERS_H_
