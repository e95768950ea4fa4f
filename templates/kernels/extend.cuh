// extend: dequant-on-dot attention of many query tokens a sequence over a paged
// cache: prefill, chunked prefill and prefix reuse, ragged batches.
//
//   grid   (ceil(total_q * kGroup / kBlockM) + batch) * num_kv_heads; block
//          index = tile * num_kv_heads + kv_head. Which sequence a tile is of
//          follows from q_indptr, on the device; blocks left over return.
//   block  kBlockM query rows (token, head of the group) of one kv head
//
// Warps stand in kRowWarps x kDimSplit: a warp holds kWarpRows rows of S and
// kValueDim / kDimSplit channels of their output. Where kDimSplit > 1 (an
// output row would not fit a warp's registers) S is computed once a part.
//
// Shared memory: q as A operands in fragment order, then kStages stages of
// kBlockN keys of K and V as codes, copied asynchronously.
#include "kernels/extend/dots.cuh"
#include "kernels/extend/output.cuh"
#include "kernels/extend/plan.cuh"
#include "kernels/extend/queries.cuh"
#include "kernels/extend/shape.cuh"
#include "kernels/extend/stage.cuh"
#include "kernels/extend/values.cuh"
#include "kernels/extend/weights.cuh"
#include "ops/attention_row.cuh"
#include "ops/custom_mask.cuh"
#include "ops/key_selection.cuh"
#include "ops/key_tile.cuh"
#include "ops/visible_keys.cuh"

namespace kvforge::kernels {

__device__ __forceinline__ void ExtendRows(const AttentionArgs& args,
                                           const ops::Sequence& sequence,
                                           int row0) {
  using Shape = ExtendShape;
  const int warp = arch::ThreadIndex() / 32;
  const int lane = arch::ThreadIndex() % 32;
  const int row_warp = warp % Shape::kRowWarps;
  const int dim_part = warp / Shape::kRowWarps;

  const int rows = sequence.q_len * spec::kGroup;
  const int last_row =
      row0 + spec::kBlockM < rows ? row0 + spec::kBlockM - 1 : rows - 1;
  const ops::KeyRange first_token =
      ops::VisibleKeys<spec::kCausal, spec::kWindow>(
          sequence.kv_len, sequence.q_len, row0 / spec::kGroup);
  const ops::KeyRange last_token =
      ops::VisibleKeys<spec::kCausal, spec::kWindow>(
          sequence.kv_len, sequence.q_len, last_row / spec::kGroup);
  // Keys that some row sees, and keys that every row sees.
  const ops::KeyRange range = {first_token.first, last_token.end};
  const ops::KeyRange common = {last_token.first, first_token.end};

  const u32 shared = arch::SharedBase();
  ExtendState state;
  LoadQueries<QueryFragments>(args, sequence, row0, warp, lane, shared, state);

  const int begin = range.first / ops::kGroupKeys * ops::kGroupKeys;
  const int tiles =
      range.end > begin
          ? (range.end - begin + spec::kBlockN - 1) / spec::kBlockN
          : 0;

  ops::Selection selection = {nullptr, 0};
  if constexpr (spec::kSparseBlock > 0) {
    selection = ops::SelectionOf(args, sequence.batch, sequence.kv_head);
  }

  // Copies are dealt to warps by group: first the groups of K, then of V.
  const auto copy_tile = [&](int tile, int stage) {
    if (tile < tiles) {
      const int copy_lane = Shape::kShort ? Anew(lane) : lane;
      const ExtendStage to = {shared + Shape::kQueryBytes +
                              stage * ExtendStage::kBytes};
      for (int item = warp; item < 2 * Shape::kGroups; item += spec::kWarps) {
        const bool value_side = item >= Shape::kGroups;
        const int group = value_side ? item - Shape::kGroups : item;
        const int key = begin + tile * spec::kBlockN + group * ops::kGroupKeys;
        ops::GroupPages<spec::kPageSize, Shape::kPicked> pages;
        if constexpr (spec::kSparseBlock > 0) {
          pages.picked = selection.Bits<spec::kSparseBlock, ops::kGroupKeys>(
              key, range, copy_lane);
        }
        if constexpr (spec::kCustomMask) {
          const ops::CustomMask mask = ops::MaskOf<true>(args, sequence);
          pages.picked &= mask.Any16(row0 / spec::kGroup,
                                     last_row / spec::kGroup, key, copy_lane);
        }
        pages.Fetch(sequence.table, key, range.first, range.end, copy_lane);
        if (value_side) {
          ops::CopyKeyGroup<VSide, spec::kValueDim>(
              args.v, sequence.kv_head, pages, key, range.first, range.end,
              to.Values(group), copy_lane);
        } else {
          ops::CopyKeyGroup<KSide, spec::kHeadDim>(
              args.k, sequence.kv_head, pages, key, range.first, range.end,
              to.Keys(group), copy_lane);
        }
      }
    }
    arch::CpAsyncCommit();
  };
  const auto attend_tile = [&](int tile, int stage) {
    arch::CpAsyncWait<spec::kStages - 1>();
    arch::BlockSync();
    const ExtendStage place = {shared + Shape::kQueryBytes +
                               stage * ExtendStage::kBytes};
    for (int key = 0; key < spec::kBlockN; key += Shape::kStepKeys) {
      const int step_key = begin + tile * spec::kBlockN + key;
      if (step_key >= range.end) break;
      u32 selected = ~0u;
      if constexpr (spec::kSparseBlock > 0) {
        selected = selection.Bits<spec::kSparseBlock, Shape::kStepKeys>(
            step_key, range, lane);
        if (selected == 0) continue;
      }
      const bool masked = Shape::kPicked || step_key < common.first ||
                          step_key + Shape::kStepKeys > common.end;
      float s[Shape::kMTiles][Shape::kStepKeys / 8][4];
      if constexpr (Shape::kDotBlocks) {
        BlockDots(shared, place, key / ops::kGroupKeys, row_warp, lane, s);
      } else {
        Dots(shared, place, key / ops::kGroupKeys, row_warp, lane, s);
      }
      const bool heavy =
          Weights(args, sequence, place, key / ops::kGroupKeys, step_key,
                  masked, selected, lane % 4, s, state);
      Accumulate(place, key / ops::kGroupKeys, dim_part, lane, heavy, s, state);
    }
    arch::BlockSync();
  };
  // The first rounds only copy. They are rounds of the same loop, not unrolled,
  // so that the copies are compiled once.
  int stage = 0;
#pragma unroll 1
  for (int tile = -spec::kStages; tile < tiles; ++tile) {
    if (tile >= 0) attend_tile(tile, stage);
    copy_tile(tile + spec::kStages, stage);
    stage = stage + 1 == spec::kStages ? 0 : stage + 1;
  }
  arch::CpAsyncWait<0>();
  // Read again: no register holds its facts until here.
  const ops::Sequence again(args, sequence.batch, sequence.kv_head);
  WriteRows(args, again, warp, lane, state);
}

}  // namespace kvforge::kernels

extern "C" __constant__ int kvforge_shared_bytes =
    kvforge::kernels::ExtendStage::kSharedBytes;
extern "C" __constant__ int kvforge_block_threads =
    kvforge::kernels::ExtendStage::kThreads;

extern "C" __global__ void __launch_bounds__(
    kvforge::kernels::ExtendStage::kThreads, 1)
    kvforge_kernel(const __grid_constant__ kvforge::AttentionArgs args) {
  using namespace kvforge;
  const i64 tile = arch::BlockIndex() / args.num_kv_heads;
  const int kv_head = static_cast<int>(arch::BlockIndex() % args.num_kv_heads);
  const kernels::TileOfBatch found =
      kernels::FindTile(args, tile, arch::ThreadIndex() % 32);
  if (found.batch < 0) return;
  const ops::Sequence sequence(args, found.batch, kv_head);
  const int row0 = found.tile * spec::kBlockM;
  if (row0 >= sequence.q_len * spec::kGroup) return;
  kernels::ExtendRows(args, sequence, row0);
}
