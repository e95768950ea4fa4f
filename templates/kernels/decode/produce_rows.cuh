// Decode's producers by asynchronous copies, row by row: any GPU, any layout.
#ifndef KVFORGE_TEMPLATES_KERNELS_DECODE_PRODUCE_ROWS_CUH_
#define KVFORGE_TEMPLATES_KERNELS_DECODE_PRODUCE_ROWS_CUH_

#include "kernels/decode/producer.cuh"
#include "ops/key_copier.cuh"

namespace kvforge::kernels {

// One producer's copies of one side, for all segments of the block, row by row
// by asynchronous copies. A producer copies of a group all kv heads of the unit
// at once: they share its pages. `values`: of V, else of K; Side is like both
// where it is not known before.
template <class Side, int kDim>
__device__ __forceinline__ void ProduceRows(const AttentionArgs& args,
                                            const HeadSplit& split,
                                            const SegmentWalk& first,
                                            u32 shared, bool values,
                                            int producer, int lane) {
  using Shape = DecodeShape;
  using Copier = ops::KeyCopier<Side, kDim, spec::kPageSize>;
  using Group = ops::KeyGroup<Side, kDim>;
  constexpr ops::GroupPlace kPieceStep = {
      Group::kCodesBytes, Group::kBlockScales,
      Group::kScaleBytes - Group::kBlockScales, Group::kRowScaleBytes,
      Group::kBlockScalePitch};
  const SideOfStages<Group> stages(shared, values);
  const auto place = [&](int stage, int warp) {
    return stages.Piece(stage, warp, ScalePlace::Plain<Group>(warp));
  };
  const CacheView view = ViewOf(args, values);
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
    if (can_copy) copier.Start(view, shift, kPieceStep, lane);
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
        ops::GroupOfKeys group = state.Keys(
            args, state.first_unit + state.step * split.parts + part, head);
        const int key = group.group * ops::kGroupKeys;
        ops::GroupPages<spec::kPageSize, spec::kCustomMask> pages;
        if constexpr (spec::kCustomMask) {
          if (!group.Empty()) {
            pages.picked = state.mask.Any16(state.first_token, state.last_token,
                                            key, lane);
            // What no row sees is not copied, so it must not be read.
            if ((pages.picked &
                 ops::ValidRows(key, group.keys.first, group.keys.end)) == 0) {
              group.keys = {0, 0};
            }
          }
        }
        if (!values && lane < 1 << shift) {
          NotePiece(shared, stage.index, warp + lane, group);
        }
        if (group.Empty()) continue;
        pages.page =
            state.window.Pages(state.table, key, state.end_entry, lane);
        const ops::GroupPlace piece = place(stage.index, warp);
        if (Copier::kPossible && can_copy) {
          u32 valid = ops::ValidRows(key, group.keys.first, group.keys.end);
          if constexpr (spec::kCustomMask) valid &= pages.picked;
          if constexpr (Copier::kPossible) {
            copier.Copy(view, head, shift, pages.page, key % spec::kPageSize,
                        valid, piece, kPieceStep, lane);
          }
        } else {
#pragma unroll 1
          for (int i = 0; i < 1 << shift; ++i) {
            ops::CopyKeyGroup<Side, kDim>(view, head + i, pages, key,
                                          group.keys.first, group.keys.end,
                                          place(stage.index, warp + i), lane);
          }
        }
      }
      arch::CpAsyncArrive(FilledBarrier(shared, stage.index));
      stage.Next();
      used |= stage.index == 0;
    }
  }
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_DECODE_PRODUCE_ROWS_CUH_
