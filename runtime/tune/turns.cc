#include "runtime/tune/turns.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/cache/file_lock.h"

namespace kvforge {
namespace {

absl::StatusOr<double> TimeOne(const TuneRunner& runner,
                               const std::string& candidate) {
  RETURN_IF_ERROR(runner.prepare(candidate).status());
  ASSIGN_OR_RETURN(const TuneTiming timing, runner.time(candidate));
  return timing.median_us;
}

}  // namespace

absl::StatusOr<TurnTimes> TimeInTurns(const TuneRunner& runner,
                                      const std::string& winner,
                                      const std::string& selected, int rounds,
                                      const SearchOptions& options) {
  std::optional<FileLock> lock;
  if (!options.lock_path.empty()) {
    ASSIGN_OR_RETURN(FileLock held, FileLock::Acquire(options.lock_path,
                                                      options.lock_timeout));
    lock.emplace(std::move(held));
  }
  TurnTimes times;
  for (int round = 0; round < std::max(rounds, 1); ++round) {
    ASSIGN_OR_RETURN(times.winner_us.emplace_back(), TimeOne(runner, winner));
    ASSIGN_OR_RETURN(times.selected_us.emplace_back(),
                     TimeOne(runner, selected));
  }
  return times;
}

TurnVerdict Compare(const TurnTimes& times) {
  const auto [winner_min, winner_max] =
      std::minmax_element(times.winner_us.begin(), times.winner_us.end());
  const auto [selected_min, selected_max] =
      std::minmax_element(times.selected_us.begin(), times.selected_us.end());
  if (*winner_max < *selected_min) return TurnVerdict::kFaster;
  if (*selected_max < *winner_min) return TurnVerdict::kSlower;
  return TurnVerdict::kEqual;
}

absl::string_view TurnVerdictName(TurnVerdict verdict) {
  switch (verdict) {
    case TurnVerdict::kFaster:
      return "faster";
    case TurnVerdict::kSlower:
      return "slower";
    case TurnVerdict::kEqual:
      break;
  }
  return "equal within noise";
}

double MedianRound(std::vector<double> rounds_us) {
  const auto middle = rounds_us.begin() + rounds_us.size() / 2;
  std::nth_element(rounds_us.begin(), middle, rounds_us.end());
  return *middle;
}

}  // namespace kvforge
