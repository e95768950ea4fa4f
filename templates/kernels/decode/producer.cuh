// What the producer warps of decode have in common: they walk the block's
// segments step by step, half of them for K, half for V, and copy each consumer
// warp's piece of a stage. How a side is copied: produce_boxes.cuh where the
// GPU has tensor copies and pages hold whole groups, else produce_rows.cuh.
//
// Every consumer gets a piece at every step, an empty one where it has no keys,
// so that all take equally many.
#ifndef KVFORGE_TEMPLATES_KERNELS_DECODE_PRODUCER_CUH_
#define KVFORGE_TEMPLATES_KERNELS_DECODE_PRODUCER_CUH_

#include "kernels/decode/plan.cuh"
#include "kernels/decode/stage.cuh"
#include "ops/custom_mask.cuh"

namespace kvforge::kernels {

// Whether K and V are copied by the same instructions: their producers then run
// the same code, which is compiled once.
inline constexpr bool kSidesAlike = KSide::kCodeBits == VSide::kCodeBits &&
                                    KSide::kRowScale == VSide::kRowScale &&
                                    KSide::kRowMinimum == VSide::kRowMinimum &&
                                    KSide::kBlock == VSide::kBlock &&
                                    spec::kHeadDim == spec::kValueDim;

__device__ __forceinline__ CacheView ViewOf(const AttentionArgs& args,
                                            bool values) {
  const CacheView& k = args.k;
  const CacheView& v = args.v;
  CacheView view = {};
  view.codes = PlaneOf(values, k.codes, v.codes);
  view.row_scale = PlaneOf(values, k.row_scale, v.row_scale);
  view.block_scale = PlaneOf(values, k.block_scale, v.block_scale);
  view.code_bytes = values ? v.code_bytes : k.code_bytes;
  view.block_scale_bytes = values ? v.block_scale_bytes : k.block_scale_bytes;
  return view;
}

// The keys that some row of a tile of query rows sees.
__device__ __forceinline__ ops::KeyRange RowKeys(const ops::Sequence& sequence,
                                                 int row0, int& last_row) {
  const int rows = sequence.q_len * spec::kGroup;
  last_row = row0 + spec::kBlockM < rows ? row0 + spec::kBlockM - 1 : rows - 1;
  return ops::VisibleKeysOfTokens<spec::kCausal, spec::kWindow>(
      sequence.kv_len, sequence.q_len, row0 / spec::kGroup,
      last_row / spec::kGroup);
}

struct Producer {
  SegmentWalk segment;
  int step;
  // Of the segment.
  const int* table;
  ops::KeyRange range;
  int end_entry;  // of the page table: its pages hold `range`
  int first_unit, end_unit;
  int first_head;
  int first_token, last_token;  // kCustomMask only
  ops::CustomMask mask;         // likewise
  ops::PageWindow<spec::kPageSize> window;

  __device__ __forceinline__ void Enter(const AttentionArgs& args,
                                        const HeadSplit& split) {
    first_head = segment.FirstHead(split);
    const ops::Sequence sequence(args, segment.batch, first_head);
    table = sequence.table;
    const int row0 = segment.FirstRow(split);
    int last_row;
    range = RowKeys(sequence, row0, last_row);
    end_entry = (range.end + spec::kPageSize - 1) / spec::kPageSize;
    if constexpr (spec::kCustomMask) {
      mask = ops::MaskOf<spec::kCustomMask>(args, sequence);
      first_token = row0 / spec::kGroup;
      last_token = last_row / spec::kGroup;
    }
    const ops::KeyRange keys = SequenceKeys(sequence.kv_len, sequence.q_len);
    first_unit = FirstGroup(keys);
    end_unit = EndGroup(args, keys);
    step = segment.step;
    window.Clear();
  }

  // The keys of one unit, for kv head `head` where there is a selection.
  __device__ __forceinline__ ops::GroupOfKeys Keys(const AttentionArgs& args,
                                                   int unit, int head) const {
    if (unit >= end_unit) return {0, {0, 0}};
    ops::Selection selection = {nullptr, 0};
    if constexpr (spec::kSparseBlock > 0) {
      selection = ops::SelectionOf(args, segment.batch, head);
    }
    return ops::GroupOfUnit<spec::kSparseBlock>(selection, range, unit);
  }
};

// Tells a consumer what its piece of a stage holds. One thread.
__device__ __forceinline__ void NotePiece(u32 shared, int stage, int warp,
                                          const ops::GroupOfKeys& group) {
  U32x4 note;
  note.v[0] = static_cast<u32>(group.group * ops::kGroupKeys);
  note.v[1] = static_cast<u32>(group.keys.first);
  note.v[2] = static_cast<u32>(group.keys.end);
  note.v[3] = 0;
  arch::StoreShared(PieceNote(shared, stage, warp), note);
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_DECODE_PRODUCER_CUH_
