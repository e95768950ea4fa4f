// decode: dequant-on-dot attention of 1 to 16 query tokens a sequence over a
// paged cache, its work shared among the blocks by kernels/decode/plan.cuh.
//
//   grid   any number of blocks; as many as the GPU holds at once is best
//   block  producer warps, which keep kStages stages of asynchronous copies
//   under
//          way across the block's segments, and kWarps consumer warps; each
//          takes its kv head's groups of 16 keys and meets the others at the
//          segment's end
//
// Per group: S^T (16 keys x 8 rows) = K Q^T and O^T (channels x 8 rows) +=
// V^T P^T, keys and channels on M, so that up to 8 query rows cost no padding.
// P^T goes from accumulator to operand by an 8x8 transpose in registers.
//
// Shared memory: the stages' codes, then their scales, q where head_dim is
// above 256 or q takes two operands, the exchange of partial rows, notes on the
// stages, what the last block is told by, barriers.
//
// With kSparseBlock the groups are those of the selected blocks: what is not
// selected costs nothing.
#include "kernels/decode/attend.cuh"
#include "kernels/decode/output.cuh"
#include "kernels/decode/plan.cuh"
#include "kernels/decode/produce_boxes.cuh"
#include "kernels/decode/produce_rows.cuh"
#include "kernels/decode/queries.cuh"
#include "kernels/decode/shape.cuh"

namespace kvforge::kernels {

__device__ __forceinline__ void Consume(const DecodeArgs& args,
                                        const HeadSplit& split,
                                        const BlockShare& share, u32 shared,
                                        int warp, int lane) {
  const int g = lane / 4;
  const int t = lane % 4;
  const WarpPieces pieces(args, split, shared, warp);
  Stage stage;
  SegmentWalk segment = share.segment;
#pragma unroll 1
  for (; !segment.Done(); segment.Next(args, split)) {
    const ops::Sequence sequence(args, segment.batch,
                                 segment.FirstHead(split) + split.Head(warp));
    const ops::CustomMask mask = ops::MaskOf<spec::kCustomMask>(args, sequence);
    DecodeState state;
    LoadQueries<DecodeShape>(args, sequence, segment.FirstRow(split), shared,
                             warp, g, t, state);
    if constexpr (DecodeShape::kQueryInShared) ConsumerSync();

    const int end = segment.EndStep();
#pragma unroll 1
    for (int step = segment.step; step < end; ++step) {
      arch::MbarrierWait(FilledBarrier(shared, stage.index), stage.parity);
      const U32x4 note =
          arch::LoadShared<U32x4>(PieceNote(shared, stage.index, warp));
      const ops::KeyRange keys = {static_cast<int>(note.v[1]),
                                  static_cast<int>(note.v[2])};
      const u32 free = FreeBarrier(shared, stage.index);
      if (keys.first < keys.end) {
        AttendGroup(shared, pieces.Keys(stage.index),
                    pieces.Values(stage.index), free,
                    static_cast<int>(note.v[0]), keys, mask, lane, state);
      } else {
        ReleasePiece(free);
      }
      stage.Next();
    }
    FinishSegment(args, split, share.chunk, segment, sequence, shared, warp,
                  lane, state);
  }
}

// Producer warps that fill a stage together.
__device__ __forceinline__ int StepProducers(const HeadSplit& split) {
  return (kCopiesBoxes<DecodeShape::KGroup> ? 1 : split.team) +
         (kCopiesBoxes<DecodeShape::VGroup> ? 1 : split.team);
}

template <class Side, int kDim>
__device__ __forceinline__ void ProduceSide(const DecodeArgs& args,
                                            const HeadSplit& split,
                                            const SegmentWalk& segment,
                                            u32 shared, bool values,
                                            int producer, int lane) {
  if constexpr (kCopiesBoxes<ops::KeyGroup<Side, kDim>>) {
    ProduceBoxes<Side, kDim>(args, split, segment, shared, values, producer,
                             lane);
  } else {
    ProduceRows<Side, kDim>(args, split, segment, shared, values, producer,
                            lane);
  }
}

// Half of the producers copy K, the others V.
__device__ __forceinline__ void Produce(const DecodeArgs& args,
                                        const HeadSplit& split,
                                        const SegmentWalk& segment, u32 shared,
                                        int producer, int lane) {
  const bool values = producer >= DecodeShape::kSideProducers;
  const int of_side =
      values ? producer - DecodeShape::kSideProducers : producer;
  if constexpr (kSidesAlike) {
    ProduceSide<KSide, spec::kHeadDim>(args, split, segment, shared, values,
                                       of_side, lane);
  } else if (values) {
    ProduceSide<VSide, spec::kValueDim>(args, split, segment, shared, true,
                                        of_side, lane);
  } else {
    ProduceSide<KSide, spec::kHeadDim>(args, split, segment, shared, false,
                                       of_side, lane);
  }
}

// What needs no plan: the barriers of the stages, and maps on their way.
__device__ __forceinline__ void Prepare(const DecodeArgs& args,
                                        const HeadSplit& split, u32 shared) {
  for (int stage = 0; stage < spec::kStages; ++stage) {
    arch::MbarrierInit(FilledBarrier(shared, stage), StepProducers(split) * 32);
    arch::MbarrierInit(FreeBarrier(shared, stage), spec::kWarps * 32);
  }
  if constexpr (spec::kTensorCopies) {
    if ((args.boxes & kBoxesOfK) != 0) arch::PrefetchMap(args.k_map);
    if ((args.boxes & kBoxesOfV) != 0) arch::PrefetchMap(args.v_map);
    if ((args.boxes & kBoxesOfKScales) != 0) {
      arch::PrefetchMap(args.k_scale_map);
    }
    if ((args.boxes & kBoxesOfVScales) != 0) {
      arch::PrefetchMap(args.v_scale_map);
    }
    if ((args.boxes & kBoxesOfKBlocks) != 0) {
      arch::PrefetchMap(args.k_block_map);
    }
    if ((args.boxes & kBoxesOfVBlocks) != 0) {
      arch::PrefetchMap(args.v_block_map);
    }
  }
}

__device__ __forceinline__ void Decode(const DecodeArgs& args) {
  // The same for all lanes, as the compiler sees only in a shuffle: branches on
  // it need no code for a warp that parts.
  const int warp = arch::ShuffleFrom(arch::ThreadIndex() / 32, 0);
  const int lane = arch::ThreadIndex() % 32;
  const u32 shared = arch::SharedBase();
  const HeadSplit split(args);
  // One warp plans: all would find the same, at the cost of each other's time.
  BlockShare share;
  if (warp == 0) {
    const DecodePlan plan(args, split, lane);
    share.segment.Start(args, split, plan, lane);
    share.chunk = plan.chunk;
    if (lane == 0) share.Store(shared + DecodeShape::kShare);
  } else if (warp == spec::kWarps && lane == 0) {
    Prepare(args, split, shared);
  }
  arch::BlockSync();
  share.Load(shared + DecodeShape::kShare);
  if (share.segment.Done()) return;
  if (warp >= spec::kWarps) {
    Produce(args, split, share.segment, shared, warp - spec::kWarps, lane);
  } else {
    Consume(args, split, share, shared, warp, lane);
  }
}

}  // namespace kvforge::kernels

extern "C" __constant__ int kvforge_shared_bytes =
    kvforge::kernels::DecodeShape::kSharedBytes;
extern "C" __constant__ int kvforge_block_threads =
    kvforge::kernels::DecodeShape::kThreads;

extern "C" __global__ void __launch_bounds__(
    kvforge::kernels::DecodeShape::kThreads, 1)
    kvforge_kernel(const __grid_constant__ kvforge::DecodeArgs args) {
  kvforge::kernels::Decode(args);
}
