// Whether a winner wins again: it and another candidate timed in turns, so that
// both meet the same clocks and neighbours.
#ifndef KVFORGE_RUNTIME_TUNE_TURNS_H_
#define KVFORGE_RUNTIME_TUNE_TURNS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tune/search.h"

namespace kvforge {

// Medians of launches in a row, microseconds, a round each; of equal lengths.
struct TurnTimes {
  std::vector<double> winner_us;
  std::vector<double> selected_us;
};

// Prepares and times `winner`, then `selected`, then again, `rounds` times, at
// least once. Holds the lock of options.lock_path meanwhile.
absl::StatusOr<TurnTimes> TimeInTurns(const TuneRunner& runner,
                                      const std::string& winner,
                                      const std::string& selected, int rounds,
                                      const SearchOptions& options);

enum class TurnVerdict {
  kFaster,  // every round of the winner beat every round of the other
  kEqual,   // the rounds overlap: the difference is noise
  kSlower,  // every round of the other beat every round of the winner
};
TurnVerdict Compare(const TurnTimes& times);
absl::string_view TurnVerdictName(TurnVerdict verdict);  // "faster"

// The median of one side's rounds.
double MedianRound(std::vector<double> rounds_us);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_TUNE_TURNS_H_
