#include "runtime/base/knobs.h"

#include <stdlib.h>

#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/shown.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

std::vector<std::string> SplitFolders(absl::string_view value) {
  return absl::StrSplit(value, ':', absl::SkipEmpty());
}

std::vector<std::string> CacheFolders(const VariableLookup& lookup) {
  if (const auto value = lookup("KVFORGE_CACHE_DIR")) {
    return SplitFolders(*value);
  }
  // The specification of XDG_CACHE_HOME has relative paths ignored.
  const auto xdg = lookup("XDG_CACHE_HOME");
  if (xdg && !xdg->empty() && xdg->front() == '/') {
    return {absl::StrCat(*xdg, "/kvforge")};
  }
  const auto home = lookup("HOME");
  if (home && !home->empty()) return {absl::StrCat(*home, "/.cache/kvforge")};
  return {};
}

absl::StatusOr<int64_t> ParseByteCount(absl::string_view value) {
  absl::string_view digits = value;
  int shift = 0;
  if (!digits.empty()) {
    switch (absl::ascii_toupper(digits.back())) {
      case 'K':
        shift = 10;
        break;
      case 'M':
        shift = 20;
        break;
      case 'G':
        shift = 30;
        break;
    }
    if (shift != 0) digits.remove_suffix(1);
  }
  int64_t count = 0;
  if (!absl::SimpleAtoi(digits, &count) || count < 0 ||
      count > std::numeric_limits<int64_t>::max() >> shift) {
    return absl::InvalidArgumentError(absl::StrCat(
        "KVFORGE_CACHE_BYTES = \"", Shown(value),
        "\" is not a number of bytes; supported: a number that is not "
        "negative, with an optional K, M or G; set it to 2G or unset it"));
  }
  return count << shift;
}

}  // namespace

absl::StatusOr<Knobs> ParseKnobs(const VariableLookup& lookup) {
  Knobs knobs;
  const auto text = [&lookup](absl::string_view name) {
    return lookup(name).value_or("");
  };
  knobs.cache_dirs = CacheFolders(lookup);
  knobs.trusted_cache_dirs = SplitFolders(text("KVFORGE_CACHE_TRUSTED"));
  if (const std::string value = text("KVFORGE_CACHE_BYTES"); !value.empty()) {
    ASSIGN_OR_RETURN(knobs.cache_bytes, ParseByteCount(value));
  }
  knobs.dump_dir = text("KVFORGE_DUMP_DIR");
  const std::string recompile = text("KVFORGE_RECOMPILE");
  if (!recompile.empty() && recompile != "0" && recompile != "1") {
    return absl::InvalidArgumentError(absl::StrCat(
        "KVFORGE_RECOMPILE = \"", Shown(recompile),
        "\" is neither 0 nor 1; set it to 1 to ignore entries on disk, or "
        "unset it"));
  }
  knobs.recompile = recompile == "1";
  if (const std::string value = text("KVFORGE_VERBOSE"); !value.empty()) {
    if (!absl::SimpleAtoi(value, &knobs.verbose) || knobs.verbose < 0 ||
        knobs.verbose > 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          "KVFORGE_VERBOSE = \"", Shown(value),
          "\" is not a level; supported: 0, 1, 2; set one of them or unset "
          "it"));
    }
  }
  knobs.templates_dir = text("KVFORGE_TEMPLATES");
  knobs.jit_path = text("KVFORGE_JIT");
  knobs.tune_db = text("KVFORGE_TUNE_DB");
  knobs.cuda_home = text("CUDA_HOME");
  if (knobs.cuda_home.empty()) knobs.cuda_home = text("CUDA_PATH");
  return knobs;
}

const absl::StatusOr<Knobs>& EnvironmentKnobs() {
  // Never destroyed: threads may outlive main.
  static const auto& knobs = *new absl::StatusOr<Knobs>(
      ParseKnobs([](absl::string_view name) -> std::optional<std::string> {
        const char* value = getenv(std::string(name).c_str());
        if (value == nullptr) return std::nullopt;
        return value;
      }));
  return knobs;
}

}  // namespace kvforge
