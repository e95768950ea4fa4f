#include "tools/tune/candidates.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/tile/memory_model.h"
#include "compiler/tile/tile_selector.h"

namespace kvforge::tune {
namespace {

constexpr int kExtendStages = 4;
constexpr int kDecodeStages = 6;
constexpr int kDecodeRows = 8;  // of the smaller tile

std::vector<Tile> ExtendShapes(const KernelSpec& spec) {
  const int dim_split = ExtendDimSplit(spec.v_head_dim);
  std::vector<Tile> tiles;
  for (const int block_m : {128, 64, 32, 16}) {
    for (const int block_n : {128, 64, 32, 16}) {
      for (const int warp_rows : {32, 16}) {
        if (block_m < warp_rows) continue;
        for (int stages = 1; stages <= kExtendStages; ++stages) {
          tiles.push_back(
              {block_m, block_n, stages, block_m / warp_rows * dim_split});
        }
      }
    }
  }
  return tiles;
}

std::vector<Tile> DecodeShapes(const KernelSpec& spec) {
  std::vector<int> row_counts = {kDecodeRows};
  if (spec.q_max * spec.group > kDecodeRows) {
    row_counts.push_back(2 * kDecodeRows);
  }
  std::vector<Tile> tiles;
  for (const int block_m : row_counts) {
    for (const int warps : {8, 4, 2, 1}) {
      for (int stages = 1; stages <= kDecodeStages; ++stages) {
        tiles.push_back({block_m, kDecodeKeysPerStep * warps, stages, warps});
      }
    }
  }
  return tiles;
}

}  // namespace

absl::StatusOr<std::vector<Tile>> TunedTiles(const KernelSpec& spec,
                                             const GpuTarget& gpu) {
  std::vector<Tile> shapes;
  if (spec.kernel == KernelKind::kExtend) {
    shapes = ExtendShapes(spec);
  } else if (spec.kernel == KernelKind::kDecode) {
    shapes = DecodeShapes(spec);
  } else {
    return absl::UnimplementedError(absl::StrCat(
        "tune: ", spec.Text(), " has one tile, ",
        "which is the selector's; decode and extend are tuned; name such a "
        "SPEC"));
  }
  // Refuses with numbers where nothing fits.
  const absl::StatusOr<TileCandidate> selected = SelectTile(spec, gpu);
  if (!selected.ok()) return selected.status();
  for (const TileCandidate& rung : TileLadder(spec, gpu)) {
    if (std::find(shapes.begin(), shapes.end(), rung.tile) == shapes.end()) {
      shapes.push_back(rung.tile);
    }
  }
  std::vector<Tile> tiles;
  for (const Tile& tile : shapes) {
    // Images need a workspace, which whoever takes the winner may not grant.
    if (!tile.images && CheckTile(spec, tile, gpu).ok()) tiles.push_back(tile);
  }
  return tiles;
}

std::vector<CandidateParts> WithGrids(const KernelSpec& spec,
                                      const GpuTarget& gpu,
                                      const std::vector<Tile>& tiles,
                                      int multiprocessors,
                                      const TuneShape& shape) {
  std::vector<CandidateParts> candidates;
  for (const Tile& tile : tiles) {
    candidates.push_back({tile.Text()});
    if (spec.kernel != KernelKind::kDecode) continue;
    const bool two_fit =
        2 * (SharedBytes(spec, tile) + gpu.shared_bytes_reserved) <=
        gpu.shared_bytes_per_sm;
    for (int heads = DecodeHeadsPerBlock(spec, tile); heads >= 1; heads /= 2) {
      if (shape.num_kv_heads % heads != 0) continue;
      for (int blocks = 1; blocks <= (two_fit ? 2 : 1); ++blocks) {
        if (multiprocessors == 0) continue;
        candidates.push_back({tile.Text(), blocks * multiprocessors, heads});
      }
    }
  }
  return candidates;
}

}  // namespace kvforge::tune
