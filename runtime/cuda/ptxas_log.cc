#include "runtime/cuda/ptxas_log.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace kvforge {
namespace {

// The number before `unit`, as in "12 bytes smem"; false where there is none.
bool NumberBefore(absl::string_view line, absl::string_view unit, int& value) {
  const size_t end = line.find(unit);
  if (end == absl::string_view::npos) return false;
  const absl::string_view before = line.substr(0, end);
  const size_t begin = before.find_last_not_of("0123456789");
  return absl::SimpleAtoi(
      begin == absl::string_view::npos ? before : before.substr(begin + 1),
      &value);
}

}  // namespace

absl::StatusOr<PtxasFacts> ParsePtxasLog(absl::string_view log,
                                         absl::string_view kernel) {
  constexpr absl::string_view kStart = "Compiling entry function '";
  const std::string start = absl::StrCat(kStart, kernel, "'");
  PtxasFacts facts;
  bool inside = false;
  bool found = false;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    if (absl::StrContains(line, kStart)) {
      inside = absl::StrContains(line, start);
    }
    if (!inside) continue;
    int stored = 0;
    int loaded = 0;
    if (NumberBefore(line, " bytes spill stores", stored) &&
        NumberBefore(line, " bytes spill loads", loaded)) {
      facts.spill_bytes += stored + loaded;
      found = true;
    }
    NumberBefore(line, " bytes smem", facts.static_shared_bytes);
  }
  if (!found) {
    return absl::InternalError(absl::StrCat(
        "the log of ptxas says nothing about the spills of \"", kernel,
        "\"; this version of NVRTC is not supported; use one of CUDA 12 or "
        "13; log:\n",
        log));
  }
  return facts;
}

absl::string_view FirstWarning(absl::string_view log) {
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    if (absl::StrContains(line, "): warning ") ||
        absl::StartsWith(line, "ptxas warning")) {
      return line;
    }
  }
  return {};
}

}  // namespace kvforge
