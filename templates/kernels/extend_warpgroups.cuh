// extend on warpgroups (sm_90a): what kernels/extend.cuh computes, with codes
// turned into operands once a block and multiplied 64 query rows at a time.
//
//   grid   as of kernels/extend.cuh
//   block  kBlockM = 128 query rows (token, head of the group) of one kv head:
//          two consumer warpgroups, then one of loaders and one of converters,
//          which pass on the keys as kernels/extend/ring.cuh says
//
// The consumers take turns at the tensor cores: while one multiplies, the other
// turns its scores into weights.
//
// Shared memory: kStages slots of images (K and V alike), q as an image a
// warpgroup, the slots' row terms, raw places, barriers.
#include "kernels/extend/convert.cuh"
#include "kernels/extend/output.cuh"
#include "kernels/extend/plan.cuh"
#include "kernels/extend/queries.cuh"
#include "kernels/extend/ring.cuh"
#include "kernels/extend/weights.cuh"
#include "kernels/extend/work.cuh"

namespace kvforge::kernels {

// Registers a thread of each kind keeps: together what the block is launched
// with.
inline constexpr int kLoaderRegisters = 56;
inline constexpr int kConverterRegisters = 56;
inline constexpr int kConsumerRegisters = 200;

// q as LoadQueries writes it: an image of 64 rows for each (part, warpgroup),
// channels in the order of K's.
struct QueryImages {
  static constexpr int kHalfBytes = 64 * ExtendRing::kLineBytes;
  static constexpr int kBytes = spec::kHeadDim / 64 * kHalfBytes;

  static __device__ __forceinline__ u32 Image(u32 shared, int part,
                                              int warpgroup) {
    return shared + (part * 2 + warpgroup) * kBytes;
  }
  static __device__ __forceinline__ u32 Word(u32 shared, int part, int m_tile,
                                             int half, int step, int lane,
                                             int pair) {
    const int row = m_tile % 4 * 16 + half * 8 + lane / 4;
    const int u = step / 2;
    const int unit = (u % 2 * 4 + lane % 4) ^ (row % 8);
    return Image(shared, part, m_tile / 4) + u / 2 * kHalfBytes +
           row * ExtendRing::kLineBytes + unit * 16 + (step % 2 * 2 + pair) * 4;
  }
};

__device__ __forceinline__ void Load(const AttentionArgs& args,
                                     const ops::Sequence& sequence,
                                     const ExtendWork& work,
                                     const ExtendRing& ring, int warp,
                                     int lane) {
  ExtendRing::RawPlace raw;
#pragma unroll 1
  for (int tile = 0; tile < work.tiles; ++tile) {
    const int first = work.begin + tile * spec::kBlockN;
#pragma unroll 1
    for (int side = 0; side < 2; ++side) {
      ring.WaitUntilFree(raw);
#pragma unroll 1
      for (int group = warp; group < ExtendShape::kGroups; group += 4) {
        const int key = first + group * ops::kGroupKeys;
        // What follows from it is not worked out ahead and kept.
        const int copy_lane = Anew(lane);
        if (side == 0) {
          CopyGroup<KSide, spec::kHeadDim>(
              args, args.k, sequence, work, key,
              ring.Raw<ExtendShape::KGroup>(raw, group), copy_lane);
        } else {
          CopyGroup<VSide, spec::kValueDim>(
              args, args.v, sequence, work, key,
              ring.Raw<ExtendShape::VGroup>(raw, group), copy_lane);
        }
      }
      arch::CpAsyncArrive(ring.Filled(raw));
      raw.Next();
    }
  }
}

// Where the row terms of a tile's keys lie.
struct SlotTerms {
  u32 keys;
  u32 values;

  __device__ __forceinline__ ops::GroupPlace Keys(int group) const {
    constexpr int kBytes = ExtendShape::KGroup::kRowScaleBytes;
    return {0, keys + group * ops::kGroupKeys * kBytes, 0, kBytes};
  }
  __device__ __forceinline__ ops::GroupPlace Values(int group) const {
    constexpr int kBytes = ExtendShape::VGroup::kRowScaleBytes;
    return {0, values + group * ops::kGroupKeys * kBytes, 0, kBytes};
  }
};

// One warpgroup's part of a block.
struct Consumer {
  using Shape = ExtendShape;
  using Scores = arch::Wgmma<ExtendRing::kKeys>;
  // Columns of one product of p V: 256 at once would not fit the registers that
  // the block is launched with.
  static constexpr int kColumns =
      spec::kValueDim > 192 ? spec::kValueDim / 2 : spec::kValueDim;
  using Output = arch::Wgmma<kColumns>;
  static_assert(kColumns % 64 == 0);
  static constexpr int kStepTiles = Shape::kStepKeys / 8;
  static constexpr int kDepthSteps = ExtendRing::kKeys / 16;

  const AttentionArgs& args;
  const ops::Sequence& sequence;
  const ExtendWork& work;
  const ExtendRing& ring;
  int warpgroup;
  int lane;
  ExtendState state;
  float s[ExtendRing::kKeys / 8][4];
  u32 weights[kDepthSteps][4];
  u32 rest[Shape::kTwoPartWeights ? kDepthSteps : 1][4];

  // s = q K^T.
  __device__ __forceinline__ void AskForScores(ExtendRing::Slot slot) {
#pragma unroll
    for (int part = 0; part < Shape::kQueryParts; ++part) {
      const u32 q =
          QueryImages::Image(ring.shared + ExtendRing::kQuery, part, warpgroup);
#pragma unroll
      for (int step = 0; step < spec::kHeadDim / 16; ++step) {
        const u32 inside = step % 4 * 32;
        const u64 a = arch::SharedMatrix(
            q + step / 4 * QueryImages::kHalfBytes + inside, 16, 1024);
        const u64 b = arch::SharedMatrix(
            ring.Image(slot) + step / 4 * ExtendRing::kHalfBytes + inside, 16,
            1024);
        spec::ScoreOperand::template GroupProduct<Scores, false>(
            s, a, b, part > 0 || step > 0);
      }
    }
  }
  // out += p V.
  template <int kSteps>
  __device__ __forceinline__ void AskForOutput(const u32 (&p)[kSteps][4],
                                               ExtendRing::Slot slot) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int column = 0; column < spec::kValueDim; column += kColumns) {
        const u64 b = arch::SharedMatrix(
            ring.Image(slot) + column / 64 * ExtendRing::kHalfBytes +
                step * 16 * ExtendRing::kLineBytes,
            ExtendRing::kHalfBytes, 8 * ExtendRing::kLineBytes);
        using Part = float[kColumns / 8][4];
        spec::ValueOperand::template GroupProduct<Output, true>(
            reinterpret_cast<Part&>(state.out[0][column / 8]), p[step], b,
            true);
      }
    }
  }

  // Dots to weights. All of a tile's have one reference: first its scores, then
  // the references, then the weights.
  __device__ __forceinline__ void Weigh(int tile, ExtendRing::Slot keys,
                                        ExtendRing::Slot values) {
    const SlotTerms terms = {ring.Terms(keys), ring.Terms(values)};
    const int first = work.begin + tile * ExtendRing::kKeys;
    ops::RowTerms v_terms[kStepTiles][2];
    StepTops tops;
    tops.Clear();
#pragma unroll
    for (int key = 0; key < ExtendRing::kKeys; key += Shape::kStepKeys) {
      const int step_key = first + key;
      const bool masked = Shape::kPicked || step_key < work.common.first ||
                          step_key + Shape::kStepKeys > work.common.end;
      MapScores(args, sequence, terms, key / ops::kGroupKeys, step_key, masked,
                ~0u, lane % 4, state, Step(key), v_terms, tops);
    }
    const bool heavy = Raise(tops, state);
#pragma unroll
    for (int key = 0; key < ExtendRing::kKeys; key += Shape::kStepKeys) {
#pragma unroll
      for (int n = 0; n < kStepTiles; ++n) {
        ops::LoadRowTermsPair<VSide, spec::kValueDim>(
            terms.Values(key / ops::kGroupKeys + n / 2),
            n % 2 * 8 + lane % 4 * 2, v_terms[n]);
      }
      WeighScores(v_terms, Step(key), state);
#pragma unroll
      for (int n = 0; n < kStepTiles; n += 2) {
        Pack(s[key / 8 + n], s[key / 8 + n + 1], key / 16 + n / 2);
      }
    }
    NoteHeavy(heavy, state);
    if constexpr (Shape::kTwoPartWeights) {
      // What its weights lose is multiplied by all or by none.
      if (arch::NamedAny(kConsumerBarrier + warpgroup, 128, heavy)) {
        arch::WgmmaBegin();
        AskForOutput(rest, values);
        arch::WgmmaCommit();
        arch::WgmmaWait<0>(state.out[0]);
      }
    }
  }
  // The dots of kStepKeys keys.
  __device__ __forceinline__ float (&Step(int key))[1][kStepTiles][4] {
    return reinterpret_cast<float(&)[1][kStepTiles][4]>(s[key / 8]);
  }
  __device__ __forceinline__ void Pack(const float (&low)[4],
                                       const float (&high)[4], int step) {
    u32(&w)[4] = weights[step];
    w[0] = spec::ValueOperand::Pack(low[0], low[1]);
    w[1] = spec::ValueOperand::Pack(low[2], low[3]);
    w[2] = spec::ValueOperand::Pack(high[0], high[1]);
    w[3] = spec::ValueOperand::Pack(high[2], high[3]);
    if constexpr (Shape::kTwoPartWeights) {
      u32(&r)[4] = rest[step];
      r[0] = ops::NarrowingRest<spec::ValueOperand>(low[0], low[1], w[0]);
      r[1] = ops::NarrowingRest<spec::ValueOperand>(low[2], low[3], w[1]);
      r[2] = ops::NarrowingRest<spec::ValueOperand>(high[0], high[1], w[2]);
      r[3] = ops::NarrowingRest<spec::ValueOperand>(high[2], high[3], w[3]);
    }
  }

  __device__ __forceinline__ void WaitForTurn() {
    arch::NamedSync(kTurnBarrier + warpgroup, ExtendRing::kConsumers);
  }
  __device__ __forceinline__ void PassTurn() {
    arch::NamedArrive(kTurnBarrier + 1 - warpgroup, ExtendRing::kConsumers);
  }

  __device__ __forceinline__ void Attend() {
    ExtendRing::Slot slot;
    ExtendRing::Slot values;
    if (warpgroup == 1) PassTurn();
#pragma unroll 1
    for (int tile = 0; tile < work.tiles; ++tile) {
      const ExtendRing::Slot keys = slot;
      const ExtendRing::Slot previous = values;
      slot.Next();
      values = slot;
      slot.Next();
      arch::MbarrierWait(ring.Filled(keys), keys.phase);
      WaitForTurn();
      arch::WgmmaBegin();
      AskForScores(keys);
      if (tile > 0) AskForOutput(weights, previous);
      arch::WgmmaCommit();
      PassTurn();
      arch::WgmmaWait<0>(s, state.out[0]);
      if (tile > 0) arch::MbarrierArrive(ring.Free(previous));
      arch::MbarrierWait(ring.Filled(values), values.phase);
      Weigh(tile, keys, values);
      arch::MbarrierArrive(ring.Free(keys));
    }
    if (warpgroup == 0) WaitForTurn();
    if (work.tiles == 0) return;
    arch::WgmmaBegin();
    AskForOutput(weights, values);
    arch::WgmmaCommit();
    arch::WgmmaWait<0>(state.out[0]);
  }
};

// Each kind of warp reads the sequence's facts for itself: none has registers
// for what another needs.
__device__ __forceinline__ void ExtendRows(const AttentionArgs& args, int batch,
                                           int kv_head, int row0) {
  const int warp = arch::ThreadIndex() / 32;
  const int lane = arch::ThreadIndex() % 32;
  const ExtendRing ring = {arch::SharedBase()};
  if (arch::ThreadIndex() == 0) ring.Init();
  arch::BlockSync();
  if (warp >= spec::kWarps + 4) {
    arch::LowerRegisters<kConverterRegisters>();
    const ops::Sequence sequence(args, batch, kv_head);
    Convert(ring, ExtendWork(sequence, row0).tiles, warp % 4, lane);
    return;
  }
  if (warp >= spec::kWarps) {
    arch::LowerRegisters<kLoaderRegisters>();
    const ops::Sequence sequence(args, batch, kv_head);
    Load(args, sequence, ExtendWork(sequence, row0), ring, warp % 4, lane);
    return;
  }
  arch::RaiseRegisters<kConsumerRegisters>();
  const ops::Sequence sequence(args, batch, kv_head);
  const ExtendWork work(sequence, row0);
  Consumer consumer = {args, sequence, work, ring, warp / 4, lane};
  LoadQueries<QueryImages>(args, sequence, row0, warp, lane,
                           ring.shared + ExtendRing::kQuery, consumer.state);
  arch::AsyncFence();
  arch::NamedSync(kConsumerBarrier + warp / 4, ExtendRing::kGroupThreads);
  consumer.Attend();
  const ops::Sequence again(args, batch, kv_head);
  WriteRows(args, again, warp, lane, consumer.state);
}

}  // namespace kvforge::kernels

extern "C" __constant__ int kvforge_shared_bytes =
    kvforge::kernels::ExtendRing::kSharedBytes;
extern "C" __constant__ int kvforge_block_threads =
    kvforge::kernels::ExtendRing::kThreads;

extern "C" __global__ void __launch_bounds__(
    kvforge::kernels::ExtendRing::kThreads, 1)
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
  kernels::ExtendRows(args, found.batch, kv_head, row0);
}
