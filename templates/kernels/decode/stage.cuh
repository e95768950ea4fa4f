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

// One of a value's two, of K or of V. Members one by one: an address that is
// known at run time only would take the arguments out of constant memory.
__device__ __forceinline__ StridedBytes PlaneOf(bool values,
                                                const StridedBytes& k,
                                                const StridedBytes& v) {
  return {values ? v.base : k.base, values ? v.page_stride : k.page_stride,
          values ? v.slot_stride : k.slot_stride,
          values ? v.head_stride : k.head_stride};
}

// How the row scales of a side lie in a stage: keys side by side for each warp,
// or where a tensor copy brought them as they lie in memory, heads side by side
// for each key.
template <class Group>
struct RowScaleOrder {
  bool heads_inside;
  u32 pitch;       // from key to key
  u32 head_pitch;  // from head to head

  // `values`: of V, else of K.
  __device__ __forceinline__ RowScaleOrder(const DecodeArgs& args,
                                           const HeadSplit& split,
                                           bool values) {
    const StridedBytes plane =
        PlaneOf(values, args.k.row_scale, args.v.row_scale);
    heads_inside =
        spec::kTensorCopies &&
        (args.boxes & (values ? kBoxesOfVScales : kBoxesOfKScales)) != 0 &&
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

// The pieces of K, or of V, in the stages.
template <class Group>
struct SideOfStages {
  u32 codes;  // of the first warp's piece in the first stage
  u32 row_scales;
  u32 block_scales;

  __device__ __forceinline__ SideOfStages(u32 shared, bool values) {
    using Shape = DecodeShape;
    codes = shared + (values ? Shape::kKCodesBytes : 0);
    row_scales = shared + Shape::kScales + (values ? Shape::kVRowScales : 0);
    block_scales = shared + Shape::kScales +
                   (values ? Shape::kVBlockScales : Shape::kKBlockScales);
  }
  // `row_offset`: from its RowScaleOrder.
  __device__ __forceinline__ ops::GroupPlace Piece(int stage, int warp,
                                                   u32 row_offset,
                                                   u32 row_pitch) const {
    using Shape = DecodeShape;
    const u32 scales = stage * Shape::kStageScaleBytes;
    return {codes + stage * Shape::kStageBytes + warp * Group::kCodesBytes,
            row_scales + scales + row_offset,
            block_scales + scales +
                warp * (Group::kScaleBytes - Group::kBlockScales),
            row_pitch};
  }
};

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
    const RowScaleOrder<DecodeShape::KGroup> k(args, split, false);
    const RowScaleOrder<DecodeShape::VGroup> v(args, split, true);
    k_offset = k.Offset(split, warp);
    k_pitch = k.pitch;
    v_offset = v.Offset(split, warp);
    v_pitch = v.pitch;
  }
  __device__ __forceinline__ ops::GroupPlace Keys(int stage) const {
    return SideOfStages<DecodeShape::KGroup>(shared, false)
        .Piece(stage, warp, k_offset, k_pitch);
  }
  __device__ __forceinline__ ops::GroupPlace Values(int stage) const {
    return SideOfStages<DecodeShape::VGroup>(shared, true)
        .Piece(stage, warp, v_offset, v_pitch);
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
