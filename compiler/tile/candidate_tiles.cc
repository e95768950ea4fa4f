#include "compiler/tile/candidate_tiles.h"

#include <algorithm>
#include <initializer_list>
#include <tuple>

#include "absl/types/span.h"
#include "compiler/tile/memory_model.h"

namespace kvforge {
namespace {

struct Area {
  int m;
  int n;
};
constexpr Area kLadderTo256[] = {{128, 64}, {64, 64}, {64, 32},
                                 {32, 64},  {32, 32}, {16, 16}};
constexpr Area kLadderTo384[] = {{32, 64}, {32, 32}, {16, 16}};
constexpr Area kLadderAbove[] = {{32, 64}, {16, 16}};

absl::Span<const Area> Ladder(int head_dim) {
  if (head_dim <= 256) return kLadderTo256;
  if (head_dim <= 384) return kLadderTo384;
  return kLadderAbove;
}

// row_warps divide the rows; the block has row_warps * ExtendDimSplit warps.
struct ExtendShape {
  int block_m;
  int block_n;
  int row_warps;
};
// 32 rows a warp read each key operand half as often as 16, and hold twice the
// accumulators.
constexpr ExtendShape kExtendTo128[] = {{128, 64, 4}, {128, 64, 8}, {64, 64, 4},
                                        {64, 32, 4},  {32, 32, 2},  {16, 32, 1},
                                        {16, 16, 1}};
constexpr ExtendShape kExtendTo256[] = {{128, 64, 8}, {64, 64, 4}, {64, 32, 4},
                                        {32, 64, 2},  {32, 32, 2}, {16, 32, 1},
                                        {16, 16, 1}};
constexpr ExtendShape kExtendAbove[] = {
    {32, 64, 2}, {32, 32, 2}, {32, 16, 2}, {16, 32, 1}, {16, 16, 1}};

absl::Span<const ExtendShape> ExtendShapes(int head_dim) {
  if (head_dim <= 128) return kExtendTo128;
  if (head_dim <= 256) return kExtendTo256;
  return kExtendAbove;
}

// Fewer rows than this read the cache too often for a second stage to pay.
constexpr int kEnoughRows = 64;

std::vector<Tile> ExtendTiles(const KernelSpec& spec, const GpuTarget& target) {
  if (IsFp8(spec)) {
    // More slots keep more copies under way; there is one block on an SM.
    return {{128, 128, 4, 8, true}, {128, 128, 3, 8, true}};
  }
  const int least_area = LeastExtendArea(spec, target);
  const int dim_split = ExtendDimSplit(spec.v_head_dim);
  std::vector<Tile> tiles;
  for (const ExtendShape& shape :
       ExtendShapes(std::max(spec.head_dim, spec.v_head_dim))) {
    for (const int stages : {2, 1}) {
      tiles.push_back(
          {shape.block_m, shape.block_n, stages, shape.row_warps * dim_split});
    }
  }
  const auto rank = [least_area](const Tile& tile) {
    return std::make_tuple(tile.block_m * tile.block_n >= least_area,
                           std::min(tile.block_m, kEnoughRows), tile.stages);
  };
  std::stable_sort(
      tiles.begin(), tiles.end(),
      [&](const Tile& a, const Tile& b) { return rank(a) > rank(b); });
  if (!target.has_warpgroup_products || !TakesWarpgroups(spec)) return tiles;
  // Faster than the others wherever both were measured.
  std::vector<Tile> all;
  for (const bool images : {false, true}) {
    if (images) all.insert(all.end(), tiles.begin(), tiles.end());
    for (const int stages : {4, 3}) {
      for (const int block_n : {128, 64}) {
        all.push_back({128, block_n, stages, 8, true, images});
      }
    }
  }
  return all;
}

bool TwoBlocksFit(const KernelSpec& spec, const Tile& tile,
                  const GpuTarget& target) {
  return 2 * (SharedBytes(spec, tile) + target.shared_bytes_reserved) <=
         target.shared_bytes_per_sm;
}

// Eight consumer warps on an SM keep up with its share of the memory, in one
// block or in two; three stages keep its copies under way.
std::vector<Tile> DecodeTiles(const KernelSpec& spec, const GpuTarget& target) {
  std::vector<int> row_counts = {8};
  if (spec.q_max * spec.group > 8) row_counts = {16, 8};
  std::vector<Tile> tiles;
  for (const int block_m : row_counts) {
    const auto add = [&](int warps, std::initializer_list<int> stage_counts,
                         bool pairs_only) {
      for (const int stages : stage_counts) {
        const Tile tile = {block_m, kDecodeKeysPerStep * warps, stages, warps};
        if (!pairs_only || TwoBlocksFit(spec, tile, target)) {
          tiles.push_back(tile);
        }
      }
    };
    // Rows of more columns take more registers than 12 warps leave each other.
    if (std::max(spec.head_dim, spec.v_head_dim) <= 128) {
      add(8, {4, 3}, /*pairs_only=*/false);
    }
    add(4, {4, 3}, /*pairs_only=*/true);
    add(4, {4, 3, 2}, /*pairs_only=*/false);
    add(2, {4, 3, 2}, /*pairs_only=*/false);
    add(1, {4, 3, 2}, /*pairs_only=*/false);
    for (const int warps : {2, 1}) add(warps, {1}, /*pairs_only=*/false);
  }
  return tiles;
}

}  // namespace

std::vector<Tile> CandidateTiles(const KernelSpec& spec,
                                 const GpuTarget& target) {
  constexpr int kWarps = 4;
  switch (spec.kernel) {
    case KernelKind::kStore:
    case KernelKind::kGather:
      return {{kWarps * StoreRowsPerWarp(spec), 0, 1, kWarps}};
    case KernelKind::kMerge:
      return {{kWarps, 0, 1, kWarps}};
    case KernelKind::kDecode:
      return DecodeTiles(spec, target);
    case KernelKind::kExtend:
      return ExtendTiles(spec, target);
  }
  return {};
}

int LeastExtendArea(const KernelSpec& spec, const GpuTarget& target) {
  const int head_dim = std::max(spec.head_dim, spec.v_head_dim);
  const int key_bits = spec.k_format->code_bits + spec.v_format->code_bits;
  for (const Area& area : Ladder(head_dim)) {
    const double bytes = (2.0 * area.m + area.n * key_bits / 8.0) * head_dim;
    if (bytes <= 0.8 * target.shared_bytes_opt_in) return area.m * area.n;
  }
  return 0;
}

}  // namespace kvforge
