// The shape in which a kernel works: what the selector chooses, the compiler
// prints into the text, the launcher computes grids from and the cache key
// contains.
#ifndef KVFORGE_COMPILER_TILE_TILE_H_
#define KVFORGE_COMPILER_TILE_TILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvforge {

// store   block_m = rows per block, block_n = 0, stages = 1
// decode  block_m = query rows (token, head of the group) per block, 8 or 16;
//         block_n = keys per step of the block = 16 * warps; each warp runs its
//         own pipeline of `stages` steps of 16 keys
// extend  block_m = query rows per block, block_n = keys per step of the block;
//         with `warpgroups` warps are consumers, stages slots of one side
//         of the keys
// merge   block_m = output rows per block, block_n = 0, stages = 1
struct Tile {
  int block_m = 0;
  int block_n = 0;
  int stages = 1;
  int warps = 4;
  // extend only: kernels/extend_warpgroups.cuh, on GPUs that have its products.
  bool warpgroups = false;
  // With warpgroups: kernels/extend_images.cuh, whose launches take a
  // workspace.
  bool images = false;

  // "128x64/2/8": block_m x block_n / stages / warps; "128x64/4/8/warpgroups",
  // "128x128/4/8/images".
  std::string Text() const;
  bool operator==(const Tile&) const = default;
};

absl::StatusOr<Tile> ParseTile(absl::string_view text);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_TILE_TILE_H_
