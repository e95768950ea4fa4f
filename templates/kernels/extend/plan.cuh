// Which sequence a block is of, worked out from q_indptr on the device.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_PLAN_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_PLAN_CUH_

#include "kernels/attention_args.h"

namespace kvforge::kernels {

// The sequence and its tile that block tile `tile` of all sequences is.
struct TileOfBatch {
  int batch;  // -1: no such tile
  int tile;
};

// Tiles are numbered so that a sequence's first one follows from q_indptr
// alone: with r rows before it, sequence b begins at tile r / kBlockM + b. It
// owns at least as many as it needs; those beyond its rows stay empty.
__device__ __forceinline__ i64 FirstTile(const AttentionArgs& args, int b) {
  const i64 rows =
      static_cast<i64>(arch::LoadGlobal<int>(args.q_indptr + b)) * spec::kGroup;
  return rows / spec::kBlockM + b;
}

// Each round of the search, the lanes probe 32 sequences of the range left.
__device__ __forceinline__ TileOfBatch FindTile(const AttentionArgs& args,
                                                i64 tile, int lane) {
  if (args.batch == 0 || tile >= FirstTile(args, args.batch)) return {-1, 0};
  int low = 0;  // FirstTile(low) <= tile < FirstTile(high)
  int high = args.batch;
  while (high - low > 1) {
    const int step = (high - low + 31) / 32;
    const int probe = low + lane * step;
    int found = low;
    if (probe < high && FirstTile(args, probe) <= tile) found = probe;
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
      const int other = arch::ShuffleXor(found, mask);
      found = other > found ? other : found;
    }
    low = found;
    high = low + step < high ? low + step : high;
  }
  // Below 0 where q_indptr does not begin at 0: the rows before it have none.
  const i64 of_sequence = tile - FirstTile(args, low);
  if (of_sequence < 0) return {-1, 0};
  return {low, static_cast<int>(of_sequence)};
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_PLAN_CUH_
