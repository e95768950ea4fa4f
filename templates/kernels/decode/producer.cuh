// The producer warps of decode: they walk the block's segments step by step and
// copy each consumer warp's piece of a stage, 16 keys of K and V. A producer
// copies one side, of a group all kv heads of the unit at once: they share its
// pages.
//
// Every consumer gets a piece at every step, an empty one where it has no keys,
// so that all take equally many.
#ifndef KVFORGE_TEMPLATES_KERNELS_DECODE_PRODUCER_CUH_
#define KVFORGE_TEMPLATES_KERNELS_DECODE_PRODUCER_CUH_

#include "kernels/decode/plan.cuh"
#include "ops/custom_mask.cuh"
#include "ops/key_copier.cuh"

namespace kvforge::kernels {

// The keys that some row of a tile of query rows sees.
__device__ __forceinline__ ops::KeyRange RowKeys(const ops::Sequence& sequence,
                                                 int row0, int& last_row) {
  const int rows = sequence.q_len * spec::kGroup;
  last_row = row0 + spec::kBlockM < rows ? row0 + spec::kBlockM - 1 : rows - 1;
  return ops::VisibleKeysOfTokens<spec::kCausal, spec::kWindow>(
      sequence.kv_len, sequence.q_len, row0 / spec::kGroup,
      last_row / spec::kGroup);
}

__device__ __forceinline__ u32 FilledBarrier(u32 shared, int stage) {
  return shared + DecodeShape::kBarriers + stage * 16;
}
__device__ __forceinline__ u32 FreeBarrier(u32 shared, int stage) {
  return FilledBarrier(shared, stage) + 8;
}
__device__ __forceinline__ u32 PieceNote(u32 shared, int stage, int warp) {
  return shared + DecodeShape::kNotes + (stage * spec::kWarps + warp) * 16;
}
__device__ __forceinline__ u32 Piece(u32 shared, int stage, int warp) {
  return shared + DecodeShape::kPipeline + stage * DecodeShape::kStageBytes +
         warp * DecodeShape::kPieceBytes;
}

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

// One producer's copies of one side, for all segments of the block.
template <class Side, int kDim, bool kSideK>
__device__ __forceinline__ void ProduceSide(const AttentionArgs& args,
                                            const HeadSplit& split,
                                            const SegmentWalk& first,
                                            u32 shared, int producer,
                                            int lane) {
  using Shape = DecodeShape;
  using Copier = ops::KeyCopier<Side, kDim, spec::kPageSize>;
  constexpr u32 kPieceBytes = Shape::kPieceBytes;
  constexpr u32 kSideOffset = kSideK ? 0 : Shape::KGroup::kBytes;
  const CacheView& view = kSideK ? args.k : args.v;
  // Runs of heads of one copy: one where there is a selection for each.
  const int shift = spec::kSparseBlock > 0 ? 0 : split.shift;
  const int runs_shift = split.shift - shift;
  const int member = producer % split.team;
  const int turns = Shape::kSideProducers / split.team;
  int turn = producer / split.team;  // steps until this producer's next

  Producer state;
  state.segment = first;
  const bool can_copy = Copier::CanCopy(view);
  Copier copier;
  if constexpr (Copier::kPossible) {
    if (can_copy) copier.Start(view, shift, kPieceBytes, lane);
  }
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
      turn = turns - 1;
      if (used) {
        arch::MbarrierWait(FreeBarrier(shared, stage.index), stage.parity ^ 1);
      }
      // The team shares the runs of heads of the step's groups.
#pragma unroll 1
      for (int item = member; item < split.parts << runs_shift;
           item += split.team) {
        const int part = item >> runs_shift;
        const int first_run = (item - (part << runs_shift)) << shift;
        const int head = state.first_head + first_run;
        const int warp = (part << split.shift) + first_run;
        const ops::GroupOfKeys group = state.Keys(
            args, state.first_unit + state.step * split.parts + part, head);
        const int key = group.group * ops::kGroupKeys;
        if (kSideK && lane < 1 << shift) {
          U32x4 note;
          note.v[0] = static_cast<u32>(key);
          note.v[1] = static_cast<u32>(group.keys.first);
          note.v[2] = static_cast<u32>(group.keys.end);
          note.v[3] = 0;
          arch::StoreShared(PieceNote(shared, stage.index, warp + lane), note);
        }
        if (group.Empty()) continue;
        ops::GroupPages<spec::kPageSize, spec::kCustomMask> pages;
        if constexpr (spec::kCustomMask) {
          pages.picked =
              state.mask.Any16(state.first_token, state.last_token, key, lane);
        }
        pages.page =
            state.window.Pages(state.table, key, state.end_entry, lane);
        const u32 piece = Piece(shared, stage.index, warp) + kSideOffset;
        if (Copier::kPossible && can_copy) {
          u32 valid = ops::ValidRows(key, group.keys.first, group.keys.end);
          if constexpr (spec::kCustomMask) valid &= pages.picked;
          if constexpr (Copier::kPossible) {
            copier.Copy(view, head, shift, pages.page, key % spec::kPageSize,
                        valid, piece, kPieceBytes, lane);
          }
        } else {
#pragma unroll 1
          for (int i = 0; i < 1 << shift; ++i) {
            ops::CopyKeyGroup<Side, kDim>(view, head + i, pages, key,
                                          group.keys.first, group.keys.end,
                                          piece + i * kPieceBytes, lane);
          }
        }
      }
      arch::CpAsyncArrive(FilledBarrier(shared, stage.index));
      stage.Next();
      used |= stage.index == 0;
    }
  }
}

// Half of the producers copy K, the others V.
__device__ __forceinline__ void Produce(const AttentionArgs& args,
                                        const HeadSplit& split,
                                        const SegmentWalk& first, u32 shared,
                                        int producer, int lane) {
  if (producer < DecodeShape::kSideProducers) {
    ProduceSide<KSide, spec::kHeadDim, true>(args, split, first, shared,
                                             producer, lane);
  } else {
    ProduceSide<VSide, spec::kValueDim, false>(
        args, split, first, shared, producer - DecodeShape::kSideProducers,
        lane);
  }
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_DECODE_PRODUCER_CUH_
