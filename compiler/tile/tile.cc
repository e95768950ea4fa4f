#include "compiler/tile/tile.h"

#include <charconv>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/shown.h"

namespace kvforge {
namespace {

constexpr int kMaxNumber = 4096;  // more than any tile has
constexpr absl::string_view kWarpgroups = "warpgroups";
constexpr absl::string_view kImages = "images";

// Digits only, at most kMaxNumber.
bool ReadNumber(absl::string_view text, int low, int* value) {
  const char* end = text.data() + text.size();
  const std::from_chars_result result =
      std::from_chars(text.data(), end, *value);
  return !text.empty() && result.ec == std::errc() && result.ptr == end &&
         *value >= low && *value <= kMaxNumber;
}

}  // namespace

std::string Tile::Text() const {
  return absl::StrCat(block_m, "x", block_n, "/", stages, "/", warps,
                      images       ? absl::StrCat("/", kImages)
                      : warpgroups ? absl::StrCat("/", kWarpgroups)
                                   : "");
}

absl::StatusOr<Tile> ParseTile(absl::string_view text) {
  Tile tile;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  tile.images = parts.size() == 4 && parts[3] == kImages;
  tile.warpgroups =
      tile.images || (parts.size() == 4 && parts[3] == kWarpgroups);
  if (parts.size() == 3 || tile.warpgroups) {
    const std::vector<absl::string_view> blocks = absl::StrSplit(parts[0], 'x');
    if (blocks.size() == 2 && ReadNumber(blocks[0], 1, &tile.block_m) &&
        ReadNumber(blocks[1], 0, &tile.block_n) &&
        ReadNumber(parts[1], 1, &tile.stages) &&
        ReadNumber(parts[2], 1, &tile.warps)) {
      return tile;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "tile '", Shown(text),
      "' cannot be read; supported: "
      "BLOCK_MxBLOCK_N/STAGES/WARPS, such as 128x64/2/8, each at most ",
      kMaxNumber, ", and /", kWarpgroups, " or /", kImages,
      " behind it or neither; write it in this form"));
}

}  // namespace kvforge
