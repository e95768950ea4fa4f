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

// Whether a side's codes come by tensor copies, and so may its scales.
template <class Group>
inline constexpr bool kCopiesBoxes =
    spec::kTensorCopies&& spec::kPageSize % ops::kGroupKeys == 0 &&
    Group::kIsBox;

// How scales of a side lie in a stage, kBytes a key: keys side by side for each
// warp, or where a tensor copy brought them as they lie in memory, heads side
// by side for each key.
template <u32 kBytes, bool kBoxes>
struct ScaleOrder {
  static constexpr u32 kPieceBytes = ops::kGroupKeys * kBytes;
  bool heads_inside;
  u32 pitch;       // from key to key
  u32 head_pitch;  // from head to head

  // `box`: the bit of DecodeArgs::boxes.
  __device__ __forceinline__ ScaleOrder(const DecodeArgs& args,
                                        const HeadSplit& split,
                                        const StridedBytes& plane, int box) {
    heads_inside = kBytes > 0 && kBoxes && (args.boxes & box) != 0 &&
                   plane.head_stride <= plane.slot_stride;
    pitch = heads_inside ? split.heads * kBytes : kBytes;
    head_pitch = heads_inside ? kBytes : kPieceBytes;
  }
  // From the stage's first scale of the side to the warp's.
  __device__ __forceinline__ u32 Offset(const HeadSplit& split,
                                        int warp) const {
    return (split.Part(warp) << split.shift) * kPieceBytes +
           split.Head(warp) * head_pitch;
  }
};

// Of both kinds.
template <class Group>
struct ScaleOrders {
  ScaleOrder<Group::kRowScaleBytes, kCopiesBoxes<Group>> rows;
  ScaleOrder<Group::kBlockScalePitch, kCopiesBoxes<Group>> blocks;

  // `values`: of V, else of K.
  __device__ __forceinline__ ScaleOrders(const DecodeArgs& args,
                                         const HeadSplit& split, bool values)
      : rows(args, split, PlaneOf(values, args.k.row_scale, args.v.row_scale),
             values ? kBoxesOfVScales : kBoxesOfKScales),
        blocks(args, split,
               PlaneOf(values, args.k.block_scale, args.v.block_scale),
               values ? kBoxesOfVBlocks : kBoxesOfKBlocks) {}
};

// Where a warp's scales are in each stage.
struct ScalePlace {
  u32 row_offset, row_pitch;
  u32 block_offset, block_pitch;

  template <class Group>
  static __device__ __forceinline__ ScalePlace
  Of(const ScaleOrders<Group>& orders, const HeadSplit& split, int warp) {
    return {orders.rows.Offset(split, warp), orders.rows.pitch,
            orders.blocks.Offset(split, warp), orders.blocks.pitch};
  }
  // Keys side by side.
  template <class Group>
  static __device__ __forceinline__ ScalePlace Plain(int warp) {
    return {static_cast<u32>(warp * Group::kBlockScales), Group::kRowScaleBytes,
            static_cast<u32>(warp * (Group::kScaleBytes - Group::kBlockScales)),
            Group::kBlockScalePitch};
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
  __device__ __forceinline__ ops::GroupPlace Piece(
      int stage, int warp, const ScalePlace& place) const {
    using Shape = DecodeShape;
    const u32 scales = stage * Shape::kStageScaleBytes;
    return {codes + stage * Shape::kStageBytes + warp * Group::kCodesBytes,
            row_scales + scales + place.row_offset,
            block_scales + scales + place.block_offset, place.row_pitch,
            place.block_pitch};
  }
};

// The piece of one warp, stage after stage.
struct WarpPieces {
  using KGroup = DecodeShape::KGroup;
  using VGroup = DecodeShape::VGroup;
  u32 shared;
  int warp;
  ScalePlace k, v;

  __device__ __forceinline__ WarpPieces(const DecodeArgs& args,
                                        const HeadSplit& split, u32 shared,
                                        int warp)
      : shared(shared),
        warp(warp),
        k(ScalePlace::Of(ScaleOrders<KGroup>(args, split, false), split, warp)),
        v(ScalePlace::Of(ScaleOrders<VGroup>(args, split, true), split, warp)) {
  }
  __device__ __forceinline__ ops::GroupPlace Keys(int stage) const {
    return SideOfStages<KGroup>(shared, false).Piece(stage, warp, k);
  }
  __device__ __forceinline__ ops::GroupPlace Values(int stage) const {
    return SideOfStages<VGroup>(shared, true).Piece(stage, warp, v);
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
