// The ring of stages between the producer and the consumer warps of decode, in
// shared memory. A stage holds a piece for each consumer warp: 16 keys of K and
// V, a note on them; and two barriers: filled, and free again.
#ifndef KVFORGE_TEMPLATES_KERNELS_DECODE_STAGE_CUH_
#define KVFORGE_TEMPLATES_KERNELS_DECODE_STAGE_CUH_

#include "kernels/decode/plan.cuh"

namespace kvforge::kernels {

__device__ __forceinline__ u32 FilledBarrier(u32 shared, int stage) {
  return shared + DecodeShape::kBarriers + stage * 16;
}
__device__ __forceinline__ u32 FreeBarrier(u32 shared, int stage) {
  return FilledBarrier(shared, stage) + 8;
}
__device__ __forceinline__ u32 PieceNote(u32 shared, int stage, int warp) {
  return shared + DecodeShape::kNotes + (stage * spec::kWarps + warp) * 16;
}

template <bool kSideK>
struct SideGroup {
  using Type = DecodeShape::KGroup;
};
template <>
struct SideGroup<false> {
  using Type = DecodeShape::VGroup;
};

// How the row scales of a side lie in a stage: keys side by side for each warp,
// or where a tensor copy brought them as they lie in memory, heads side by side
// for each key.
template <bool kSideK>
struct RowScaleOrder {
  using Group = typename SideGroup<kSideK>::Type;
  bool heads_inside;
  u32 pitch;       // from key to key
  u32 head_pitch;  // from head to head

  __device__ __forceinline__ RowScaleOrder(const DecodeArgs& args,
                                           const HeadSplit& split) {
    const StridedBytes& plane = (kSideK ? args.k : args.v).row_scale;
    heads_inside =
        spec::kTensorCopies &&
        (args.boxes & (kSideK ? kBoxesOfKScales : kBoxesOfVScales)) != 0 &&
        plane.head_stride <= plane.slot_stride;
    pitch = heads_inside ? split.heads * Group::kRowScaleBytes
                         : Group::kRowScaleBytes;
    head_pitch = heads_inside ? Group::kRowScaleBytes : Group::kBlockScales;
  }
  // From the stage's first row scale of the side to the warp's.
  __device__ __forceinline__ u32 Offset(const HeadSplit& split,
                                        int warp) const {
    return (split.Part(warp) << split.shift) * Group::kBlockScales +
           split.Head(warp) * head_pitch;
  }
};

// The keys of a warp's piece, of K or of V. `row_offset`: from its
// RowScaleOrder.
template <bool kSideK>
__device__ __forceinline__ ops::GroupPlace PieceSide(u32 shared, int stage,
                                                     int warp, u32 row_offset,
                                                     u32 row_pitch) {
  using Shape = DecodeShape;
  using KGroup = Shape::KGroup;
  using VGroup = Shape::VGroup;
  const u32 codes = shared + stage * Shape::kStageBytes;
  const u32 scales = shared + Shape::kScales + stage * Shape::kStageScaleBytes;
  if constexpr (kSideK) {
    return {codes + warp * KGroup::kCodesBytes, scales + row_offset,
            scales + Shape::kKBlockScales +
                warp * (KGroup::kScaleBytes - KGroup::kBlockScales),
            row_pitch};
  }
  return {codes + Shape::kKCodesBytes + warp * VGroup::kCodesBytes,
          scales + Shape::kVRowScales + row_offset,
          scales + Shape::kVBlockScales +
              warp * (VGroup::kScaleBytes - VGroup::kBlockScales),
          row_pitch};
}

// The piece of one warp, stage after stage.
struct WarpPieces {
  u32 shared;
  int warp;
  u32 k_offset, k_pitch;
  u32 v_offset, v_pitch;

  __device__ __forceinline__ WarpPieces(const DecodeArgs& args,
                                        const HeadSplit& split, u32 shared,
                                        int warp)
      : shared(shared), warp(warp) {
    const RowScaleOrder<true> k(args, split);
    const RowScaleOrder<false> v(args, split);
    k_offset = k.Offset(split, warp);
    k_pitch = k.pitch;
    v_offset = v.Offset(split, warp);
    v_pitch = v.pitch;
  }
  __device__ __forceinline__ ops::GroupPlace Keys(int stage) const {
    return PieceSide<true>(shared, stage, warp, k_offset, k_pitch);
  }
  __device__ __forceinline__ ops::GroupPlace Values(int stage) const {
    return PieceSide<false>(shared, stage, warp, v_offset, v_pitch);
  }
};

// A stage of the ring, and the parity of its use.
struct Stage {
  int index = 0;
  u32 parity = 0;

  __device__ __forceinline__ void Next() {
    if (++index == spec::kStages) {
      index = 0;
      parity ^= 1;
    }
  }
};

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_DECODE_STAGE_CUH_
