#include "runtime/tune/timing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/shown.h"

namespace kvforge {
namespace {

constexpr absl::string_view kVerdictNames[] = {"timed", "checked", "spills",
                                               "wrong", "failed"};

absl::Status NoCandidate(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "candidate '", Shown(text),
      "' cannot be read; supported: TILE or TILE grid=BLOCKSxHEADS, such as "
      "8x128/4/8 grid=264x4; tune again to have it written anew"));
}

}  // namespace

absl::string_view VerdictName(TuneVerdict verdict) {
  return kVerdictNames[static_cast<int>(verdict)];
}

absl::StatusOr<TuneVerdict> ParseVerdict(absl::string_view name) {
  const auto* found =
      std::find(std::begin(kVerdictNames), std::end(kVerdictNames), name);
  if (found != std::end(kVerdictNames)) {
    return static_cast<TuneVerdict>(found - std::begin(kVerdictNames));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("verdict '", Shown(name),
                   "' is none of timed, checked, spills, wrong and failed; "
                   "the table is of another version: use a new file"));
}

std::string CandidateText(const CandidateParts& parts) {
  if (parts.blocks == 0) return parts.tile;
  return absl::StrCat(parts.tile, " grid=", parts.blocks, "x",
                      parts.heads_per_block);
}

absl::StatusOr<CandidateParts> ParseCandidate(absl::string_view text) {
  CandidateParts parts;
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  parts.tile = std::string(words[0]);
  if (parts.tile.empty() || words.size() > 2) return NoCandidate(text);
  if (words.size() == 1) return parts;
  absl::string_view grid = words[1];
  const std::pair<absl::string_view, absl::string_view> numbers =
      absl::StrSplit(absl::StripPrefix(grid, "grid="), absl::MaxSplits('x', 1));
  if (!absl::ConsumePrefix(&grid, "grid=") ||
      !absl::SimpleAtoi(numbers.first, &parts.blocks) ||
      !absl::SimpleAtoi(numbers.second, &parts.heads_per_block) ||
      parts.blocks < 1 || parts.heads_per_block < 1) {
    return NoCandidate(text);
  }
  return parts;
}

std::optional<TuneRecord> ChooseFastest(
    const std::vector<TuneRecord>& records) {
  const TuneRecord* best = nullptr;
  const auto rank = [](const TuneRecord& record) {
    return std::tie(record.timing.median_us, record.key.candidate);
  };
  for (const TuneRecord& record : records) {
    if (record.verdict != TuneVerdict::kTimed) continue;
    if (best == nullptr || rank(record) < rank(*best)) best = &record;
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

std::optional<TuneRecord> ChooseForAnyShape(
    const std::vector<TuneRecord>& records) {
  // By candidate text, then by shape: sums are then of one order.
  std::map<std::string, std::map<std::string, const TuneRecord*>> timed;
  std::map<std::string, double> fastest;  // by shape
  for (const TuneRecord& record : records) {
    if (record.verdict != TuneVerdict::kTimed) continue;
    const absl::StatusOr<CandidateParts> parts =
        ParseCandidate(record.key.candidate);
    if (!parts.ok() || parts->blocks != 0) continue;
    timed[record.key.candidate][record.key.shape] = &record;
    const auto [at, is_new] =
        fastest.try_emplace(record.key.shape, record.timing.median_us);
    if (!is_new) at->second = std::min(at->second, record.timing.median_us);
  }
  const TuneRecord* best = nullptr;
  double best_ratio = std::numeric_limits<double>::infinity();
  for (const auto& [candidate, shapes] : timed) {
    if (shapes.size() != fastest.size()) continue;
    double ratio = 0;
    for (const auto& [shape, record] : shapes) {
      ratio += record->timing.median_us / fastest.at(shape);
    }
    if (ratio >= best_ratio) continue;
    best_ratio = ratio;
    best = shapes.begin()->second;
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

}  // namespace kvforge
