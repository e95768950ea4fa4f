// Block-sparse attention: the list of KV blocks, kBlock tokens each, that a
// (sequence, kv head) attends to. Entries come in any order without duplicates;
// -1 names no block, and neither does a block past the sequence's keys.
#ifndef KVFORGE_TEMPLATES_OPS_KEY_SELECTION_CUH_
#define KVFORGE_TEMPLATES_OPS_KEY_SELECTION_CUH_

#include "ops/attention_row.cuh"
#include "ops/key_tile.cuh"

namespace kvforge::ops {

struct Selection {
  const int* blocks;
  int count;

  // The keys of entry `index` that lie in `range`.
  template <int kBlock>
  __device__ __forceinline__ KeyRange Keys(int index, KeyRange range) const {
    const int block = arch::LoadGlobal<int>(blocks + index);
    if (range.end <= 0 || block < 0 || block > (range.end - 1) / kBlock) {
      return {0, 0};
    }
    const int begin = block * kBlock;
    return {begin > range.first ? begin : range.first,
            range.end - begin < kBlock ? range.end : begin + kBlock};
  }

  // Which of kKeys (16 or 32) keys from `key` on are selected and in `range`,
  // bit i for key key + i. All lanes of a warp.
  template <int kBlock, int kKeys>
  __device__ __forceinline__ u32 Bits(int key, KeyRange range, int lane) const {
    u32 result = 0;
#pragma unroll 1
    for (int i = lane; i < count; i += 32) {
      const KeyRange keys = Keys<kBlock>(i, range);
      const int first = keys.first > key ? keys.first - key : 0;
      const int end = keys.end - key < kKeys ? keys.end - key : kKeys;
      if (first < end) result |= (~0u >> (32 - (end - first))) << first;
    }
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
      result |= arch::ShuffleXor(result, mask);
    }
    return result;
  }
};

__device__ __forceinline__ Selection SelectionOf(const AttentionArgs& args,
                                                 const Sequence& sequence) {
  const i64 list =
      static_cast<i64>(sequence.batch) * args.num_kv_heads + sequence.kv_head;
  return {args.selected + list * args.selected_per_head,
          args.selected_per_head};
}

// The groups of 16 keys that one warp of decode attends to, in order. Group i
// holds keys 16 * i .. + 15; `keys` are those of them that may be read.
//
// Without a selection (kBlock 0) a unit of work is a group, and units
// [begin, end) are groups. With one, a unit is a group of an entry of the list:
// kUnits of them an entry, as many as a block can touch; those that hold no key
// in `range` are passed over.
template <int kBlock, int kStride>
struct GroupWalk {
  static constexpr int kUnits =
      kBlock == 0                ? 1
      : kBlock % kGroupKeys == 0 ? kBlock / kGroupKeys
      : kGroupKeys % kBlock == 0 ? 1
                                 : (kBlock + kGroupKeys - 2) / kGroupKeys + 1;

  Selection selection;
  KeyRange range;
  int unit;
  int end;
  // Defined also where no unit holds a key.
  int group = 0;
  KeyRange keys = {0, 0};

  __device__ __forceinline__ void Start(int first_unit, int end_unit) {
    unit = first_unit;
    end = end_unit;
    Settle();
  }
  __device__ __forceinline__ bool Done() const { return unit >= end; }
  __device__ __forceinline__ void Next() {
    unit += kStride;
    Settle();
  }

 private:
  __device__ __forceinline__ void Settle() {
    if constexpr (kBlock == 0) {
      group = unit;
      keys = range;
    } else {
      for (; unit < end; unit += kStride) {
        const KeyRange block =
            selection.template Keys<kBlock>(unit / kUnits, range);
        group = block.first / kGroupKeys + unit % kUnits;
        const int key = group * kGroupKeys;
        keys = {block.first > key ? block.first : key,
                block.end - key < kGroupKeys ? block.end : key + kGroupKeys};
        if (keys.first < keys.end) return;
      }
    }
  }
};

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_KEY_SELECTION_CUH_
