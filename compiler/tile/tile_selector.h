// Chooses the tile of a kernel for a GPU from the memory model.
#ifndef KVFORGE_COMPILER_TILE_TILE_SELECTOR_H_
#define KVFORGE_COMPILER_TILE_TILE_SELECTOR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/spec/kernel_spec.h"
#include "compiler/target/target.h"
#include "compiler/tile/tile.h"

namespace kvforge {

// OK if `target` has the products that `spec` computes with; else
// kUnimplemented names the GPUs that do.
absl::Status CheckCompute(const KernelSpec& spec, const GpuTarget& target);

// One rung of the ladder and what became of it.
struct TileCandidate {
  Tile tile;
  int shared_bytes = 0;
  int registers = 0;
  std::string refused;  // why not, with numbers; empty = it fits
};

// Every tile considered for `spec` on `target`, fastest known first.
std::vector<TileCandidate> TileLadder(const KernelSpec& spec,
                                      const GpuTarget& target);

// The first candidate that fits. kResourceExhausted names the smallest tile,
// the bytes it needs and the bytes there are.
absl::StatusOr<TileCandidate> SelectTile(const KernelSpec& spec,
                                         const GpuTarget& target);

// The first candidate of warpgroups that fits, with or without images:
// kResourceExhausted if there is none.
absl::StatusOr<TileCandidate> SelectWarpgroupTile(const KernelSpec& spec,
                                                  const GpuTarget& target,
                                                  bool images = false);

// Tiles of extend in which the kernel is another one than in the selector's:
// the first that fits of warps, of warpgroups and of images, with these names.
struct NamedTile {
  absl::string_view name;
  Tile tile;
};
std::vector<NamedTile> OtherExtendTiles(const KernelSpec& spec,
                                        const GpuTarget& target);

// OK if the kernel's template works in `tile` and it fits the GPU: for a tile
// that comes from outside the ladder. kInvalidArgument for a shape the template
// does not have, kResourceExhausted for one that does not fit.
absl::Status CheckTile(const KernelSpec& spec, const Tile& tile,
                       const GpuTarget& target);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_TILE_TILE_SELECTOR_H_
