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
  // x / parts
  __device__ __forceinline__ int ByParts(int x) const {
    if constexpr ((spec::kWarps & (spec::kWarps - 1)) != 0) return x / parts;
    return (x << shift) / spec::kWarps;
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
  int units = 0;
  int steps = 0;  // of each unit

  SequenceWork() = default;
  __device__ __forceinline__ SequenceWork(const AttentionArgs& args,
                                          const HeadSplit& split, int batch) {
    const int q_len = arch::LoadGlobal<int>(args.q_indptr + batch + 1) -
                      arch::LoadGlobal<int>(args.q_indptr + batch);
    const int kv_len = arch::LoadGlobal<int>(args.kv_lens + batch);
    const int row_tiles =
        q_len > 0 ? (q_len * spec::kGroup + spec::kBlockM - 1) / spec::kBlockM
                  : 0;
    units = row_tiles * split.blocks;
    const ops::KeyRange keys = SequenceKeys(kv_len > 0 ? kv_len : 0, q_len);
    const int groups = EndGroup(args, keys) - FirstGroup(keys);
    steps = groups > split.parts ? split.ByParts(groups + split.parts - 1) : 1;
  }
  __device__ __forceinline__ i64 All() const {
    return static_cast<i64>(units) * steps;
  }
};

// a / b, both positive: 32 bits nearly always do, at a third of the time. Once
// in the text: what runs once a block costs the fetch of its instructions.
__device__ __noinline__ i64 Divide(i64 a, i64 b) {
  if ((a | b) >> 32 == 0) return static_cast<u32>(a) / static_cast<u32>(b);
  return a / b;
}

__device__ __forceinline__ i64 ShuffleFrom(i64 x, int lane) {
  const u32 low = arch::ShuffleFrom(static_cast<u32>(x), lane);
  const u32 high = arch::ShuffleFrom(static_cast<u32>(x >> 32), lane);
  return static_cast<i64>(static_cast<u64>(high) << 32 | low);
}

// What the whole launch has to do, and a block's share of it.
struct DecodePlan {
  i64 total;
  i64 chunk;           // steps of one block, 1 at least
  SequenceWork first;  // of sequence `lane`, where there is one

  // All lanes of a warp.
  __device__ __forceinline__ DecodePlan(const AttentionArgs& args,
                                        const HeadSplit& split, int lane) {
    total = 0;
    int fewest = 0x7fffffff;
    int most = 0;
#pragma unroll 4
    for (int batch = lane; batch < args.batch; batch += 32) {
      const SequenceWork work(args, split, batch);
      if (batch == lane) first = work;
      if (work.units == 0) continue;
      total += work.All();
      fewest = work.steps < fewest ? work.steps : fewest;
      most = work.steps > most ? work.steps : most;
    }
    // Lanes of no sequence have nothing to add.
#pragma unroll 1
    for (int mask = 1; mask < 32 && mask < args.batch; mask *= 2) {
      total += ShuffleFrom(total, lane ^ mask);
      const int other_fewest = arch::ShuffleXor(fewest, mask);
      fewest = other_fewest < fewest ? other_fewest : fewest;
      const int other_most = arch::ShuffleXor(most, mask);
      most = other_most > most ? other_most : most;
    }
    total = ShuffleFrom(total, 0);
    fewest = arch::ShuffleFrom(fewest, 0);
    most = arch::ShuffleFrom(most, 0);
    const i64 blocks = arch::BlockCount();
    chunk = Divide(total + blocks - 1, blocks);
    if (chunk < 1) chunk = 1;
    if (fewest == most) {
      i64 even;
      if (chunk < most) {
        const i64 parts = Divide(most, chunk);
        even = Divide(most + parts - 1, parts);
      } else {
        even = Divide(chunk + most - 1, most) * most;
      }
      if (even - chunk <= chunk / 16) chunk = even;
    }
  }
};

// The segments of a block, in order.
struct SegmentWalk {
  i64 position;  // of the segment's first step in the line
  i64 left;      // steps of the block from there on
  int batch;
  int units;  // of the sequence
  int steps;  // of each of its units
  int unit;   // of the sequence
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
    position = arch::BlockIndex() * plan.chunk;
    left = plan.total - position;
    if (left > plan.chunk) left = plan.chunk;
    if (Done()) return;
    i64 before = 0;  // steps of the sequences of earlier rounds
    for (int first = 0;; first += 32) {
      i64 mine = 0;
      SequenceWork work = plan.first;
      if (first > 0 && first + lane < args.batch) {
        work = SequenceWork(args, split, first + lane);
      }
      if (first + lane < args.batch) mine = work.All();
      i64 through = mine;  // of this lane's sequence and those before it
#pragma unroll 1
      for (int distance = 1; distance < 32 && distance < args.batch;
           distance *= 2) {
        const i64 other = ShuffleFrom(through, (lane - distance) & 31);
        if (lane >= distance) through += other;
      }
      const i64 offset = position - (before + through - mine);
      const bool here = offset >= 0 && offset < mine;
      if (arch::WarpAny(here)) {
        int owner = here ? lane : 0;
#pragma unroll 1
        for (int mask = 1; mask < 32 && mask < args.batch; mask *= 2) {
          owner |= arch::ShuffleXor(owner, mask);
        }
        owner = arch::ShuffleFrom(owner, 0);
        batch = first + owner;
        units = arch::ShuffleFrom(work.units, owner);
        steps = arch::ShuffleFrom(work.steps, owner);
        const i64 inside = ShuffleFrom(offset, owner);
        unit = static_cast<int>(Divide(inside, steps));
        step = static_cast<int>(inside - static_cast<i64>(unit) * steps);
        return;
      }
      before += ShuffleFrom(through, 31);
    }
  }

  __device__ __forceinline__ void Next(const AttentionArgs& args,
                                       const HeadSplit& split) {
    const int taken = EndStep() - step;
    position += taken;
    left -= taken;
    step = 0;
    ++unit;
    if (Done() || unit < units) return;
    unit = 0;
    do {
      ++batch;
      const SequenceWork work(args, split, batch);
      units = work.units;
      steps = work.steps;
    } while (units == 0);
  }

  // The unit's first kv head.
  __device__ __forceinline__ int FirstHead(const HeadSplit& split) const {
    return unit % split.blocks * split.heads;
  }
  __device__ __forceinline__ int FirstRow(const HeadSplit& split) const {
    return unit / split.blocks * spec::kBlockM;
  }
};

// What a block does, found by one warp and passed on through shared memory.
struct BlockShare {
  SegmentWalk segment;  // the block's first
  i64 chunk;            // DecodePlan::chunk

  // Lane 0's; `at`: kShareBytes of shared memory, 16-byte aligned.
  __device__ __forceinline__ void Store(u32 at) const {
    const auto word = [](i64 x, int half) {
      return static_cast<u32>(x >> (32 * half));
    };
    U32x4 words[3];
    words[0].v[0] = word(segment.position, 0);
    words[0].v[1] = word(segment.position, 1);
    words[0].v[2] = word(segment.left, 0);
    words[0].v[3] = word(segment.left, 1);
    words[1].v[0] = word(chunk, 0);
    words[1].v[1] = word(chunk, 1);
    words[1].v[2] = static_cast<u32>(segment.batch);
    words[1].v[3] = static_cast<u32>(segment.units);
    words[2].v[0] = static_cast<u32>(segment.steps);
    words[2].v[1] = static_cast<u32>(segment.unit);
    words[2].v[2] = static_cast<u32>(segment.step);
    words[2].v[3] = 0;
#pragma unroll
    for (int i = 0; i < 3; ++i) arch::StoreShared(at + 16 * i, words[i]);
  }
  __device__ __forceinline__ void Load(u32 at) {
    const auto join = [](u32 low, u32 high) {
      return static_cast<i64>(static_cast<u64>(high) << 32 | low);
    };
    U32x4 words[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) words[i] = arch::LoadShared<U32x4>(at + 16 * i);
    segment.position = join(words[0].v[0], words[0].v[1]);
    segment.left = join(words[0].v[2], words[0].v[3]);
    chunk = join(words[1].v[0], words[1].v[1]);
    segment.batch = static_cast<int>(words[1].v[2]);
    segment.units = static_cast<int>(words[1].v[3]);
    segment.steps = static_cast<int>(words[2].v[0]);
    segment.unit = static_cast<int>(words[2].v[1]);
    segment.step = static_cast<int>(words[2].v[2]);
  }
};

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_DECODE_PLAN_CUH_
