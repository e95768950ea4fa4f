// Decode's producers where the GPU has tensor copies: one instruction copies
// the codes of the unit's heads, a box of 16 slots of one page, and one each
// their row scales and their block scales. Lane w of a producer looks after the
// piece of consumer warp w. What tensor copies cannot read (args.boxes) comes
// by asynchronous copies of all lanes; so do groups that are not read whole,
// whose other rows must be zeros.
#ifndef KVFORGE_TEMPLATES_KERNELS_DECODE_PRODUCE_BOXES_CUH_
#define KVFORGE_TEMPLATES_KERNELS_DECODE_PRODUCE_BOXES_CUH_

#include "kernels/decode/producer.cuh"
#include "ops/key_copier.cuh"

namespace kvforge::kernels {

// Whether a side's row scales, too, can come by tensor copies.
template <class Side>
inline constexpr bool kBoxesOfScales =
    Side::kRowScale&& spec::kSparseBlock == 0;

// Starts the copy of scales of 16 slots from `slot` on, kBytes a key, of the
// unit's heads from `head` on, which share their page. One thread.
template <u32 kBytes>
__device__ __forceinline__ void CopyScaleBox(
    const ScaleOrder<kBytes, true>& order, const TensorMap& map, int slot,
    int head, int page, int shift, u32 to, u32 filled) {
  const int at[5] = {
      static_cast<int>(kBytes) * (order.heads_inside ? head : slot),
      order.heads_inside ? slot : head, 0, 0, page};
  arch::ExpectBytes(filled, order.kPieceBytes << shift);
  arch::TensorCopy(to, map, at, filled);
}

// What one lane knows of its warp's piece of a step.
struct PieceKeys {
  ops::GroupOfKeys group;
  int head;
  int page;   // that holds the group
  u32 valid;  // bit i: key i of the group is read
};

// One producer's copies of one side, for all segments of the block. `values`:
// of V, else of K; Side is like both where it is not known before.
template <class Side, int kDim>
__device__ __forceinline__ void ProduceBoxes(const DecodeArgs& args,
                                             const HeadSplit& split,
                                             const SegmentWalk& first,
                                             u32 shared, bool values,
                                             int producer, int lane) {
  using Shape = DecodeShape;
  using Group = ops::KeyGroup<Side, kDim>;
  constexpr bool kNarrowBlocks =
      Side::kBlock > 0 &&
      (Group::kBlockScaleBytes == 4 || Group::kBlockScaleBytes == 8);
  constexpr int kBlockBytes = kNarrowBlocks ? Group::kBlockScaleBytes : 4;
  const CacheView view = ViewOf(args, values);
  const TensorMap& map = values ? args.v_map : args.k_map;
  const TensorMap& scale_map = values ? args.v_scale_map : args.k_scale_map;
  const TensorMap& block_map = values ? args.v_block_map : args.k_block_map;
  const bool boxes = (args.boxes & (values ? kBoxesOfV : kBoxesOfK)) != 0;
  const bool scale_boxes =
      (args.boxes & (values ? kBoxesOfVScales : kBoxesOfKScales)) != 0;
  const bool block_boxes =
      (args.boxes & (values ? kBoxesOfVBlocks : kBoxesOfKBlocks)) != 0;
  const ScaleOrders<Group> orders(args, split, values);
  const SideOfStages<Group> stages(shared, values);
  const auto place = [&](int stage, int warp) {
    return stages.Piece(stage, warp, ScalePlace::Of(orders, split, warp));
  };
  const bool narrow_blocks =
      kNarrowBlocks && view.block_scale_bytes >= kBlockBytes;
  constexpr bool kBoxesOfBlocks = kNarrowBlocks && spec::kSparseBlock == 0;
  // Runs of heads whose scales are copied at once.
  const int shift = spec::kSparseBlock > 0 ? 0 : split.shift;
  ops::NarrowRows<Side::kRowMinimum ? 8 : 4, 4> row_scales;
  ops::NarrowRows<kBlockBytes, kBlockBytes> block_scales;
  if constexpr (Side::kRowScale) {
    row_scales.Start(view.row_scale, shift, orders.rows.head_pitch,
                     orders.rows.pitch, lane);
  }
  if constexpr (kNarrowBlocks) {
    block_scales.Start(view.block_scale, shift, orders.blocks.head_pitch,
                       orders.blocks.pitch, lane);
  }
  const int part = lane >> split.shift;
  int turn = producer;  // steps until this producer's next

  Producer state;
  state.segment = first;
  Stage stage;
  bool used = false;  // the stage was filled before
#pragma unroll 1
  for (; !state.segment.Done(); state.segment.Next(args, split)) {
    state.Enter(args, split);
    const int end = state.segment.EndStep();
#pragma unroll 1
    for (; state.step < end; ++state.step) {
      if (turn > 0) {
        --turn;
        stage.Next();
        used |= stage.index == 0;
        continue;
      }
      turn = Shape::kSideProducers - 1;

      const int unit = state.first_unit + state.step * split.parts;
      PieceKeys mine = {{0, {0, 0}}, state.first_head, 0, 0};
      if (lane < spec::kWarps) {
        mine.head += split.Head(lane);
        mine.group = state.Keys(args, unit + part, mine.head);
        mine.valid = ops::ValidRows(mine.group.group * ops::kGroupKeys,
                                    mine.group.keys.first, mine.group.keys.end);
      }
      const int key = mine.group.group * ops::kGroupKeys;
      if constexpr (spec::kCustomMask) {
#pragma unroll 1
        for (int warp = 0; warp < spec::kWarps; ++warp) {
          const int group_key = arch::ShuffleFrom(key, warp);
          if (!arch::WarpAny(lane == warp && mine.valid != 0)) continue;
          const u32 picked = state.mask.Any16(
              state.first_token, state.last_token, group_key, lane);
          if (lane == warp) mine.valid &= picked;
        }
        // What no row sees is not copied, so it must not be read.
        if (mine.valid == 0) mine.group.keys = {0, 0};
      }
      const int entry = key / spec::kPageSize;
      if constexpr (spec::kSparseBlock > 0) {
        if (mine.valid != 0) {
          mine.page = arch::LoadGlobal<int>(state.table + entry);
        }
      } else {
        const int first_entry = unit * ops::kGroupKeys / spec::kPageSize;
        state.window.Move(state.table, first_entry, state.end_entry, lane);
        mine.page = state.window.Page(mine.valid != 0 ? entry : first_entry);
      }

      const u32 filled = FilledBarrier(shared, stage.index);
      if (used) {
        arch::MbarrierWait(FreeBarrier(shared, stage.index), stage.parity ^ 1);
      }
      if (!values && lane < spec::kWarps) {
        NotePiece(shared, stage.index, lane, mine.group);
      }
      const bool full = mine.valid == 0xffffu;
      const bool whole = boxes && full;
      // Heads share their page, and copies, but where each has a selection.
      const bool leads = shift == 0 || split.Head(lane) == 0;
      if (whole && leads) {
        const int at[5] = {0, key % spec::kPageSize, 0, mine.head, mine.page};
        arch::ExpectBytes(filled, Group::kCodesBytes << shift);
        arch::TensorCopy(place(stage.index, lane).codes, map, at, filled);
      }
      bool copies_rows = Side::kRowScale && mine.valid != 0;
      if constexpr (kBoxesOfScales<Side>) {
        if (scale_boxes && full) {
          copies_rows = false;
          if (leads) {
            CopyScaleBox(orders.rows, scale_map, key % spec::kPageSize,
                         mine.head, mine.page, shift,
                         place(stage.index, lane).row_scales, filled);
          }
        }
      }
      bool copies_blocks = narrow_blocks && mine.valid != 0;
      if constexpr (kBoxesOfBlocks) {
        if (block_boxes && full) {
          copies_blocks = false;
          if (leads) {
            CopyScaleBox(orders.blocks, block_map, key % spec::kPageSize,
                         mine.head, mine.page, shift,
                         place(stage.index, lane).block_scales, filled);
          }
        }
      }
      if (arch::WarpAny(copies_rows || copies_blocks)) {
        constexpr int kUnroll = kNarrowBlocks ? 2 : 1;  // where it is the rule
#pragma unroll kUnroll
        for (int warp = 0; warp < spec::kWarps; warp += 1 << shift) {
          const u32 valid = arch::ShuffleFrom(mine.valid, warp);
          const int page = arch::ShuffleFrom(mine.page, warp);
          const int slot = arch::ShuffleFrom(key, warp) % spec::kPageSize;
          const int head = state.first_head + split.Head(warp);
          if (valid == 0) continue;
          const ops::GroupPlace to = place(stage.index, warp);
          const auto offset = [&](const StridedBytes& plane) {
            return page * plane.page_stride + slot * plane.slot_stride +
                   head * plane.head_stride;
          };
          if constexpr (Side::kRowScale) {
            if (!scale_boxes || valid != 0xffffu) {
              row_scales.Copy(offset(view.row_scale), to.row_scales, shift,
                              valid, lane);
            }
          }
          if constexpr (kNarrowBlocks) {
            if (narrow_blocks && (!block_boxes || valid != 0xffffu)) {
              block_scales.Copy(offset(view.block_scale), to.block_scales,
                                shift, valid, lane);
            }
          }
        }
      }
      const bool other_scales = Side::kBlock > 0 && !narrow_blocks;
      const bool rest = mine.valid != 0 && (!whole || other_scales);
      if (arch::WarpAny(rest)) {
#pragma unroll 1
        for (int warp = 0; warp < spec::kWarps; ++warp) {
          const u32 valid = arch::ShuffleFrom(mine.valid, warp);
          const int group_key = arch::ShuffleFrom(key, warp);
          const int keys_first = arch::ShuffleFrom(mine.group.keys.first, warp);
          const int keys_end = arch::ShuffleFrom(mine.group.keys.end, warp);
          const int head = state.first_head + split.Head(warp);
          ops::GroupPages<spec::kPageSize, spec::kCustomMask> pages;
          pages.page = arch::ShuffleFrom(mine.page, warp);
          if constexpr (spec::kCustomMask) pages.picked = valid;
          if (valid == 0) continue;
          const ops::GroupPlace piece = place(stage.index, warp);
          if (!boxes || valid != 0xffffu) {
            ops::CopyKeyCodes<Side, kDim>(view, head, pages, group_key,
                                          keys_first, keys_end, piece.codes,
                                          lane);
          }
          if (other_scales) {
            ops::CopyBlockScales<Side, kDim>(view, head, pages, group_key,
                                             keys_first, keys_end,
                                             piece.block_scales, lane);
          }
        }
      }
      arch::CpAsyncArrive(filled);
      stage.Next();
      used |= stage.index == 0;
    }
  }
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_DECODE_PRODUCE_BOXES_CUH_
