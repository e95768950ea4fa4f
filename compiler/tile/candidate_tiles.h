// The tiles that are considered for a kernel, fastest known first. The selector
// takes the first that fits; the tuner measures them.
#ifndef KVFORGE_COMPILER_TILE_CANDIDATE_TILES_H_
#define KVFORGE_COMPILER_TILE_CANDIDATE_TILES_H_

#include <vector>

#include "compiler/spec/kernel_spec.h"
#include "compiler/target/target.h"
#include "compiler/tile/tile.h"

namespace kvforge {

// Extend. Tiles with block_m * block_n of at least LeastExtendArea come first;
// of these, up to 64, those with more rows, which decode each key less often;
// then 2 stages, which hide the copy of the next keys; then the larger tile.
// Decode. What counts is bytes in flight: two blocks on an SM with as many
// stages as that leaves, else one block. 16 query rows a block before 8, which
// reads the cache twice as often. 1 stage is the last resort.
// Store and merge have one tile each.
std::vector<Tile> CandidateTiles(const KernelSpec& spec,
                                 const GpuTarget& target);

// block_m * block_n that an extend tile has at least: that of the first of
// 128x64, 64x64, 64x32, 32x64, 32x32, 16x16 (beginning at 128x64 for head_dim
// up to 256, at 32x64 up to 384; above, 32x64 or 16x16) for which
//   (2 m + n * K bytes + n * V bytes) * head_dim <= 0.8 * opt-in shared bytes
// with bytes an element and the larger head_dim of K and V. 0 if none fits.
int LeastExtendArea(const KernelSpec& spec, const GpuTarget& target);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_TILE_CANDIDATE_TILES_H_
