#include "compiler/tile/tile_selector.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/tile/candidate_tiles.h"
#include "compiler/tile/memory_model.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr int kMaxWarps = 16;
constexpr int kMaxStages = 8;

// Why no tile of warpgroups serves `spec` on `target`; empty if one may.
std::string WarpgroupMisfit(const KernelSpec& spec, const GpuTarget& target) {
  if (spec.kernel != KernelKind::kExtend) {
    return "works in no tile of warpgroups; extend does";
  }
  if (!target.has_warpgroup_products) {
    return absl::StrCat("needs products of warpgroups, which ", target.name,
                        " does not have");
  }
  if (!TakesWarpgroups(spec)) {
    return "is none for warpgroups, which take head_dims of 64, 128 or 192, no "
           "ue8m0 block scales, no row minima and no selected blocks";
  }
  return "";
}

// Why `tile` does not fit `target`; empty if it does.
std::string Misfit(const KernelSpec& spec, const Tile& tile,
                   const GpuTarget& target) {
  if (tile.warpgroups) {
    const std::string refused = WarpgroupMisfit(spec, target);
    if (!refused.empty()) return refused;
  }
  if (tile.images && !TakesImages(spec)) {
    return "is none for images, which take no custom mask, no channel scales "
           "and no compute=fp8";
  }
  const int bytes = SharedBytes(spec, tile);
  if (bytes > target.shared_bytes_opt_in) {
    return absl::StrCat("needs ", bytes, " bytes of shared memory, ",
                        target.name, " has ", target.shared_bytes_opt_in,
                        " for a block");
  }
  const int registers = RegistersPerThread(spec, tile);
  const int register_limit = RegisterLimit(spec, tile, target);
  if (registers > register_limit) {
    return absl::StrCat("needs ", registers, " registers a thread, ",
                        target.name, " has ", register_limit, " for ",
                        tile.warps, " warps");
  }
  return "";
}

// What the template of the kernel accepts; empty if `tile` is of that shape.
std::string ShapeRule(const KernelSpec& spec, const Tile& tile) {
  switch (spec.kernel) {
    case KernelKind::kStore:
    case KernelKind::kGather: {
      const int rows = StoreRowsPerWarp(spec);
      if (tile.block_m == tile.warps * rows && tile.block_n == 0 &&
          tile.stages == 1) {
        return "";
      }
      return absl::StrCat("block_m = ", rows,
                          " * warps, block_n = 0, stages = 1");
    }
    case KernelKind::kMerge:
      if (tile.block_m == tile.warps && tile.block_n == 0 && tile.stages == 1) {
        return "";
      }
      return "block_m = warps, block_n = 0, stages = 1";
    case KernelKind::kDecode:
      if ((tile.block_m == 8 || tile.block_m == 16) &&
          tile.block_n == kDecodeKeysPerStep * tile.warps &&
          tile.stages >= DecodeSideProducers(tile)) {
        return "";
      }
      return absl::StrCat("block_m = 8 or 16, block_n = ", kDecodeKeysPerStep,
                          " * warps, 2 stages or more from 4 warps up");
    case KernelKind::kExtend: {
      if (IsFp8(spec)) {
        if (tile.warpgroups && tile.block_m == 128 && tile.block_n == 128 &&
            tile.warps == 8 && tile.stages >= 2 && tile.stages <= 4) {
          return "";
        }
        return "with compute=fp8 128x128, 2 to 4 stages, 8 warps, warpgroups";
      }
      if (tile.warpgroups) {
        if (tile.block_m == 128 && tile.warps == 8 && tile.stages >= 3 &&
            (tile.block_n == 64 || tile.block_n == 128)) {
          return "";
        }
        return "block_m = 128, block_n = 64 or 128, 3 stages or more, 8 warps";
      }
      const int warp_rows = ExtendWarpRows(spec, tile);
      if ((warp_rows == 16 || warp_rows == 32) && tile.block_n >= 16 &&
          tile.block_n % 16 == 0) {
        return "";
      }
      const int dim_split = ExtendDimSplit(spec.v_head_dim);
      return absl::StrCat("block_m = 16 or 32 times warps / ", dim_split,
                          ", block_n a multiple of 16");
    }
  }
  return "";
}

}  // namespace

std::vector<TileCandidate> TileLadder(const KernelSpec& spec,
                                      const GpuTarget& target) {
  std::vector<TileCandidate> ladder;
  for (const Tile& tile : CandidateTiles(spec, target)) {
    ladder.push_back({tile, SharedBytes(spec, tile),
                      RegistersPerThread(spec, tile),
                      Misfit(spec, tile, target)});
  }
  return ladder;
}

absl::Status CheckCompute(const KernelSpec& spec, const GpuTarget& target) {
  if (!IsFp8(spec) || target.has_warpgroup_products) return absl::OkStatus();
  std::string gpus;
  for (const GpuTarget& other : kTargets) {
    if (!other.has_warpgroup_products) continue;
    absl::StrAppend(&gpus, gpus.empty() ? "" : ", ", other.name);
  }
  return absl::UnimplementedError(absl::StrCat(
      spec.Text(), " on ", target.name,
      ": compute=fp8 needs products of warpgroups of 8-bit floats; GPUs that "
      "have them: ",
      gpus, "; leave compute out"));
}

absl::StatusOr<TileCandidate> SelectTile(const KernelSpec& spec,
                                         const GpuTarget& target) {
  RETURN_IF_ERROR(CheckCompute(spec, target));
  const std::vector<TileCandidate> ladder = TileLadder(spec, target);
  for (const TileCandidate& candidate : ladder) {
    // Launches in a tile of images need a workspace: that is asked for.
    if (candidate.refused.empty() && !candidate.tile.images) return candidate;
  }
  const TileCandidate& smallest =
      *std::min_element(ladder.begin(), ladder.end(),
                        [](const TileCandidate& a, const TileCandidate& b) {
                          return a.shared_bytes < b.shared_bytes;
                        });
  return absl::ResourceExhaustedError(absl::StrCat(
      spec.Text(), " on ", target.name, ": no tile fits; the smallest, ",
      smallest.tile.Text(), ", ", smallest.refused,
      "; use a GPU with more shared memory, a smaller head_dim or a cache "
      "format with fewer bytes a row"));
}

absl::StatusOr<TileCandidate> SelectWarpgroupTile(const KernelSpec& spec,
                                                  const GpuTarget& target,
                                                  bool images) {
  for (const TileCandidate& candidate : TileLadder(spec, target)) {
    if (candidate.tile.warpgroups && candidate.tile.images == images &&
        candidate.refused.empty()) {
      return candidate;
    }
  }
  const std::string refused = WarpgroupMisfit(spec, target);
  return absl::ResourceExhaustedError(absl::StrCat(
      spec.Text(), " on ", target.name, ": no tile of warpgroups fits; ",
      refused.empty() ? images && !TakesImages(spec)
                            ? "images take no custom mask, no channel scales "
                              "and no compute=fp8"
                            : "each takes more registers or shared memory than "
                              "there are"
                      : absl::StrCat("the spec ", refused),
      "; take the tile that the selector chooses"));
}

std::vector<NamedTile> OtherExtendTiles(const KernelSpec& spec,
                                        const GpuTarget& target) {
  const auto name = [](const Tile& tile) {
    return tile.images       ? absl::string_view("images")
           : tile.warpgroups ? absl::string_view("warpgroups")
                             : absl::string_view("warps");
  };
  std::vector<NamedTile> others;
  const absl::StatusOr<TileCandidate> chosen = SelectTile(spec, target);
  if (!chosen.ok() || spec.kernel != KernelKind::kExtend) return others;
  for (const TileCandidate& candidate : TileLadder(spec, target)) {
    const absl::string_view kind = name(candidate.tile);
    if (!candidate.refused.empty() || kind == name(chosen->tile)) continue;
    const bool known =
        std::any_of(others.begin(), others.end(),
                    [&](const NamedTile& other) { return other.name == kind; });
    if (!known) others.push_back({kind, candidate.tile});
  }
  return others;
}

absl::Status CheckTile(const KernelSpec& spec, const Tile& tile,
                       const GpuTarget& target) {
  const bool counts_in_range = tile.warps >= 1 && tile.warps <= kMaxWarps &&
                               tile.stages >= 1 && tile.stages <= kMaxStages;
  const std::string rule =
      counts_in_range ? ShapeRule(spec, tile)
                      : absl::StrCat("1 to ", kMaxWarps, " warps, 1 to ",
                                     kMaxStages, " stages");
  if (!rule.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tile ", tile.Text(), " of ", spec.Text(),
                     " is no shape of this kernel; supported: ", rule,
                     "; take one of the tiles that `kvforge tile` lists"));
  }
  const std::string misfit = Misfit(spec, tile, target);
  if (misfit.empty()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "tile ", tile.Text(), " of ", spec.Text(), " ", misfit,
      "; take one of the tiles that `kvforge tile` lists as fitting"));
}

}  // namespace kvforge
