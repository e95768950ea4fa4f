// Which tiles and grids are measured for a SPEC: every one that the exact model
// says launches, far more than the selector's ladder has.
#ifndef KVFORGE_TOOLS_TUNE_CANDIDATES_H_
#define KVFORGE_TOOLS_TUNE_CANDIDATES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/spec/kernel_spec.h"
#include "compiler/target/target.h"
#include "compiler/tile/tile.h"
#include "runtime/tune/shape.h"
#include "runtime/tune/timing.h"

namespace kvforge::tune {

// Extend. block_m 16 to 128, block_n 16 to 128, 1 to 4 stages, 16 or 32 rows a
// warp. Decode. 8 query rows a block, also 16 where there are as many, 1 to 8
// warps, 1 to 6 stages. Each with the selector's own tiles; only those that fit
// shared memory and, by the model's bound, registers. kUnimplemented for a
// kernel of one tile, kResourceExhausted where nothing fits.
absl::StatusOr<std::vector<Tile>> TunedTiles(const KernelSpec& spec,
                                             const GpuTarget& gpu);

// Each tile with the library's grid and, for decode where `multiprocessors` is
// above 0, with grids of one block or two an SM and each number of kv heads a
// block.
std::vector<CandidateParts> WithGrids(const KernelSpec& spec,
                                      const GpuTarget& gpu,
                                      const std::vector<Tile>& tiles,
                                      int multiprocessors,
                                      const TuneShape& shape);

}  // namespace kvforge::tune

#endif  // KVFORGE_TOOLS_TUNE_CANDIDATES_H_
