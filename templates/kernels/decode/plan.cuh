// How the blocks of a decode launch share its work, from lengths that only the
// device knows.
//
//   step     the next 16 keys for each warp of a block
//   unit     one sequence, one tile of query rows and heads_per_block kv heads:
//            as many steps as the sequence's keys take, 1 at least
//   segment  neighbouring steps of one unit that one block takes
//
// All steps lie in one line: sequences in order, of each its units, tiles of
// query rows outside and kv heads inside, of each its steps. Block c takes
// steps [c * chunk, (c + 1) * chunk). Where all units are equally long the
// chunk is rounded so that block and unit ends meet, if that costs little: a
// unit of one block needs no merge.
#ifndef KVFORGE_TEMPLATES_KERNELS_DECODE_PLAN_CUH_
#define KVFORGE_TEMPLATES_KERNELS_DECODE_PLAN_CUH_

#include "kernels/decode/shape.cuh"
#include "ops/attention_row.cuh"
#include "ops/key_selection.cuh"

namespace kvforge::kernels {

__device__ constexpr int Log2OfPower(int power) {
  int log2 = 0;
  while (power >> log2 > 1) ++log2;
  return log2;
}

// Consumer warp w of a block serves kv head w % heads of its unit, and of each
// step group w / heads.
struct HeadSplit {
  int shift;   // log2(heads)
  int heads;   // kv heads of a unit
  int parts;   // warps of a kv head
  int blocks;  // units side by side over the kv heads
  // Producers of a side that share a step where they copy rows; the others take
  // the steps between.
  int team;

  __device__ __forceinline__ explicit HeadSplit(const DecodeArgs& args)
      : shift(DecodeShape::kQueryInShared ? 0 : args.heads_per_block_log2),
        heads(1 << shift),
        parts(spec::kWarps >> shift),
        blocks(args.num_kv_heads >> shift),
        team(parts >= 2 ? 2 : 1) {
    if (team > DecodeShape::kSideProducers) team = DecodeShape::kSideProducers;
  }

  __device__ __forceinline__ int Head(int warp) const {
    return warp & (heads - 1);
  }
  __device__ __forceinline__ int Part(int warp) const { return warp >> shift; }

  // Steps that so many groups of 16 keys take: ceil(groups / parts). The parts
  // are a constant times a power of two, which takes no division.
  __device__ __forceinline__ int StepsOf(int groups) const {
    constexpr int kMostHeads = spec::kWarps & -spec::kWarps;
    constexpr int kLeastParts = spec::kWarps / kMostHeads;
    const int factor_log2 = Log2OfPower(kMostHeads) - shift;
    const int rounded = groups + (1 << factor_log2) - 1;
    return ((rounded >> factor_log2) + kLeastParts - 1) / kLeastParts;
  }
};

// The keys that some query token of a sequence sees.
__device__ __forceinline__ ops::KeyRange SequenceKeys(int kv_len, int q_len) {
  return ops::VisibleKeysOfTokens<spec::kCausal, spec::kWindow>(kv_len, q_len,
                                                                0, q_len - 1);
}

__device__ __forceinline__ int FirstGroup(ops::KeyRange keys) {
  return spec::kSparseBlock > 0 ? 0 : keys.first / ops::kGroupKeys;
}

__device__ __forceinline__ int EndGroup(const AttentionArgs& args,
                                        ops::KeyRange keys) {
  return spec::kSparseBlock > 0
             ? args.selected_per_head * ops::kGroupsPerEntry<spec::kSparseBlock>
             : (keys.end + ops::kGroupKeys - 1) / ops::kGroupKeys;
}

// The units of one sequence.
struct SequenceWork {
  int tiles = 0;  // of query rows
  int steps = 0;  // of each unit

  SequenceWork() = default;
  __device__ __forceinline__ SequenceWork(const AttentionArgs& args,
                                          const HeadSplit& split, int batch) {
    const int q_len = arch::LoadGlobal<int>(args.q_indptr + batch + 1) -
                      arch::LoadGlobal<int>(args.q_indptr + batch);
    const int kv_len = arch::LoadGlobal<int>(args.kv_lens + batch);
    tiles = q_len > 0
                ? (q_len * spec::kGroup + spec::kBlockM - 1) / spec::kBlockM
                : 0;
    const ops::KeyRange keys = SequenceKeys(kv_len > 0 ? kv_len : 0, q_len);
    const int some = split.StepsOf(EndGroup(args, keys) - FirstGroup(keys));
    steps = some > 1 ? some : 1;
  }
  __device__ __forceinline__ i64 All(const HeadSplit& split) const {
    return static_cast<i64>(tiles * split.blocks) * steps;
  }
};

__device__ __forceinline__ i64 ShuffleFrom(i64 x, int lane) {
  const u32 low = arch::ShuffleFrom(static_cast<u32>(x), lane);
  const u32 high = arch::ShuffleFrom(static_cast<u32>(x >> 32), lane);
  return static_cast<i64>(static_cast<u64>(high) << 32 | low);
}

// What the whole launch has to do, and a block's share of it.
struct DecodePlan {
  i64 total;
  i64 chunk;  // steps of one block, 1 at least

  // All lanes of a warp; every warp finds the same.
  __device__ __forceinline__ DecodePlan(const AttentionArgs& args,
                                        const HeadSplit& split, int lane) {
    total = 0;
    int fewest = 0x7fffffff;
    int most = 0;
    // So many sequences of a lane are read at once.
    constexpr int kAhead = 4;
#pragma unroll 1
    for (int first = lane; first - lane < args.batch; first += 32 * kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int batch = first + 32 * i;
        const bool exists = batch < args.batch;
        const SequenceWork work(args, split, exists ? batch : 0);
        if (!exists || work.tiles == 0) continue;
        total += work.All(split);
        fewest = work.steps < fewest ? work.steps : fewest;
        most = work.steps > most ? work.steps : most;
      }
    }
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
      total += ShuffleFrom(total, lane ^ mask);
      const int other_fewest = arch::ShuffleXor(fewest, mask);
      fewest = other_fewest < fewest ? other_fewest : fewest;
      const int other_most = arch::ShuffleXor(most, mask);
      most = other_most > most ? other_most : most;
    }
    const i64 blocks = arch::BlockCount();
    chunk = (total + blocks - 1) / blocks;
    if (chunk < 1) chunk = 1;
    if (fewest == most) {
      i64 even;
      if (chunk < most) {
        const int parts = most / static_cast<int>(chunk);
        even = (most + parts - 1) / parts;
      } else {
        even = (chunk + most - 1) / most * most;
      }
      if (even - chunk <= chunk / 16) chunk = even;
    }
  }
};

// The segments of a block, in order.
struct SegmentWalk {
  i64 left;  // steps of the block, from the segment's first on
  int batch;
  int tiles;  // of query rows, of the sequence
  int steps;  // of each of its units
  int tile;   // of the unit
  int run;    // of kv heads, of the unit
  int step;   // of the unit: the segment's first

  __device__ __forceinline__ bool Done() const { return left <= 0; }
  // One past the segment's last step of its unit.
  __device__ __forceinline__ int EndStep() const {
    return left < steps - step ? step + static_cast<int>(left) : steps;
  }
  __device__ __forceinline__ bool WholeUnit() const {
    return step == 0 && left >= steps;
  }

  // All lanes of a warp.
  __device__ __forceinline__ void Start(const AttentionArgs& args,
                                        const HeadSplit& split,
                                        const DecodePlan& plan, int lane) {
    const i64 position = arch::BlockIndex() * plan.chunk;
    left = plan.total - position;
    if (left > plan.chunk) left = plan.chunk;
    if (Done()) return;
    i64 before = 0;  // steps of the sequences of earlier rounds
    for (int first = 0;; first += 32) {
      i64 mine = 0;
      SequenceWork work;
      if (first + lane < args.batch) {
        work = SequenceWork(args, split, first + lane);
        mine = work.All(split);
      }
      i64 through = mine;  // of this lane's sequence and those before it
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const i64 other = ShuffleFrom(through, (lane - distance) & 31);
        if (lane >= distance) through += other;
      }
      const i64 offset = position - (before + through - mine);
      const bool here = offset >= 0 && offset < mine;
      if (arch::WarpAny(here)) {
        int owner = here ? lane : 0;
#pragma unroll
        for (int mask = 1; mask < 32; mask *= 2) {
          owner |= arch::ShuffleXor(owner, mask);
        }
        batch = first + owner;
        tiles = arch::ShuffleFrom(work.tiles, owner);
        steps = arch::ShuffleFrom(work.steps, owner);
        const i64 inside = ShuffleFrom(offset, owner);
        const int unit = static_cast<int>(inside / steps);
        step = static_cast<int>(inside - static_cast<i64>(unit) * steps);
        tile = unit / split.blocks;
        run = unit - tile * split.blocks;
        return;
      }
      before += ShuffleFrom(through, 31);
    }
  }

  __device__ __forceinline__ void Next(const AttentionArgs& args,
                                       const HeadSplit& split) {
    left -= EndStep() - step;
    step = 0;
    ++run;
    if (Done() || run < split.blocks) return;
    run = 0;
    ++tile;
    if (tile < tiles) return;
    tile = 0;
    do {
      ++batch;
      const SequenceWork work(args, split, batch);
      tiles = work.tiles;
      steps = work.steps;
    } while (tiles == 0);
  }

  // The unit's first kv head.
  __device__ __forceinline__ int FirstHead(const HeadSplit& split) const {
    return run * split.heads;
  }
  __device__ __forceinline__ int FirstRow(const HeadSplit&) const {
    return tile * spec::kBlockM;
  }
};

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_DECODE_PLAN_CUH_
