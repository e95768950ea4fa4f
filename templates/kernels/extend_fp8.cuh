// extend with fp8 products (sm_90a): what kernels/extend.cuh computes, with q
// and the weights of V quantized to e4m3 and the cache's codes multiplied as
// they are. docs/formats.md states its error.
//
//   grid   as of kernels/extend.cuh, the last tile of queries first: under a
//          causal mask it has the most keys
//   block  kBlockM = 128 query rows (token, head of the group) of one kv head:
//          two consumer warpgroups, then one of producers, which pass on the
//          keys as kernels/extend/fp8_ring.cuh says
//
// The consumers take turns at the tensor cores: while one multiplies, the other
// turns its scores into weights. Products with V, of half the columns each,
// are added to the output in f32: the first while the next tile's scores are
// made, the second is made while those are scaled and masked.
//
// Shared memory: kStages slots of K, two of V, q, kStages raw places of V, row
// terms, barriers.
#include "kernels/extend/fp8_keys.cuh"
#include "kernels/extend/fp8_queries.cuh"
#include "kernels/extend/fp8_weights.cuh"
#include "kernels/extend/output.cuh"
#include "kernels/extend/plan.cuh"
#include "kernels/extend/work.cuh"

namespace kvforge::kernels {

// Registers a thread of each kind keeps: together what the block is launched
// with.
inline constexpr int kProducerRegisters = 72;
inline constexpr int kConsumerRegisters = 216;

// One warpgroup's part of a block.
struct Fp8Consumer {
  using Shape = ExtendShape;
  using Scores = arch::Wgmma<Fp8Ring::kKeys>;
  using Output = arch::Wgmma<Fp8Weights::kColumns>;
  static constexpr int kStepBytes = 32;  // of a line: depth of a product
  // Whether the registers do not hold a tile's scores beside a product with V:
  // they are made one after the other then.
  static constexpr bool kAlone = Shape::kFeatures || !spec::kScoreIsProduct;
  // Whether they do, but not while scores are hidden.
  static constexpr bool kShort = spec::kWindow > 0 ||
                                 (spec::kGroup & (spec::kGroup - 1)) != 0;

  // Whether what follows from the lane is worked out again for every tile.
  static constexpr bool kAnewLane = Shape::kPicked && !ops::kScoreBias;

  const AttentionArgs& args;
  const ops::Sequence& sequence;
  const ExtendWork& work;
  const Fp8Ring& ring;
  int warpgroup;
  int lane;
  ExtendState state;
  Fp8Weights weights;
  float s[Fp8Ring::kKeys / 8][4];
  float product[Fp8Weights::kColumns / 8][4];

  static __device__ __forceinline__ u64 Matrix(u32 image, int step) {
    return arch::SharedMatrix(image + step * kStepBytes, 16, 1024);
  }

  // s = q K^T.
  __device__ __forceinline__ void AskForScores(Fp8Ring::KeySlot keys) {
#pragma unroll
    for (int step = 0; step < spec::kHeadDim / kStepBytes; ++step) {
      Scores::E4m3(s, Matrix(ring.QueryImage(warpgroup), step),
                   Matrix(ring.Image(keys), step), step > 0);
    }
    arch::WgmmaCommit();
  }
  // product = w V of one tile and half of its columns.
  __device__ __forceinline__ void AskForProduct(Fp8Ring::ValueSlot values,
                                                int half) {
    const u32 image =
        ring.Image(values) + half * Fp8Weights::kColumns * Fp8Ring::kLineBytes;
#pragma unroll
    for (int step = 0; step < Fp8Weights::kSteps; ++step) {
      Output::E4m3(product, weights.codes[step], Matrix(image, step), step > 0);
    }
    arch::WgmmaCommit();
  }

  __device__ __forceinline__ void WaitForTurn() {
    arch::NamedSync(kTurnBarrier + warpgroup, Fp8Ring::kConsumers);
  }
  __device__ __forceinline__ void PassTurn() {
    arch::NamedArrive(kTurnBarrier + 1 - warpgroup, Fp8Ring::kConsumers);
  }

  // Dots of a tile to logarithms of weights; gives K's slot back.
  __device__ __forceinline__ void Score(int tile, Fp8Ring::KeySlot keys,
                                        Fp8Ring::ValueSlot values) {
    const int first = work.begin + tile * Fp8Ring::kKeys;
    const int t = (kAnewLane ? Anew(lane) : lane) % 4;
    if constexpr (VSide::kRowScale) {
      arch::MbarrierWait(ring.Filled(values), values.phase);
    }
    Fp8Weights::Map(args, sequence, ring.Terms(keys), ring.LogTerms(values),
                    first, t, state, s);
    arch::MbarrierArrive(ring.Free(keys));
    if (Shape::kPicked || first < work.common.first ||
        first + Fp8Ring::kKeys > work.common.end) {
      Fp8Weights::Hide(args, sequence, first, t, state, s);
    }
  }
  // Those to weights.
  __device__ __forceinline__ void Weigh(Fp8Ring::ValueSlot values) {
    weights.Weigh(ring.InverseTerms(values), lane % 4, s, state);
  }

  __device__ __forceinline__ void TakeSecondProduct(Fp8Ring::ValueSlot values) {
    arch::WgmmaWait<0>(product);
    arch::MbarrierArrive(ring.Free(values));
    weights.Promote(1, product, state);
  }

  // Both, and nothing beside them.
  __device__ __forceinline__ void TakeProducts(Fp8Ring::ValueSlot values) {
    arch::WgmmaBegin();
    AskForProduct(values, 0);
    arch::WgmmaWait<0>(product);
    weights.Promote(0, product, state);
    arch::WgmmaBegin();
    AskForProduct(values, 1);
    TakeSecondProduct(values);
  }

  __device__ __forceinline__ void Attend() {
    if (work.tiles == 0) return;
    Fp8Ring::KeySlot keys;
    Fp8Ring::ValueSlot values;
    if (warpgroup == 1) PassTurn();
    arch::MbarrierWait(ring.Filled(keys), keys.phase);
    WaitForTurn();
    arch::WgmmaBegin();
    AskForScores(keys);
    PassTurn();
    arch::WgmmaWait<0>(s);
    Score(0, keys, values);
    Weigh(values);
#pragma unroll 1
    for (int tile = 1; tile < work.tiles; ++tile) {
      const Fp8Ring::ValueSlot previous = values;
      keys.Next();
      values.Next();
      arch::MbarrierWait(ring.Filled(previous), previous.phase);
      arch::MbarrierWait(ring.Filled(keys), keys.phase);
      WaitForTurn();
      if constexpr (kAlone) {
        TakeProducts(previous);
        arch::WgmmaBegin();
        AskForScores(keys);
        PassTurn();
        arch::WgmmaWait<0>(s);
        Score(tile, keys, values);
      } else {
        arch::WgmmaBegin();
        AskForProduct(previous, 0);
        AskForScores(keys);
        PassTurn();
        arch::WgmmaWait<1>(product);
        weights.Promote(0, product, state);
        arch::WgmmaBegin();
        AskForProduct(previous, 1);
        arch::WgmmaWait<1>(s);
        if constexpr (kShort) TakeSecondProduct(previous);
        Score(tile, keys, values);
        if constexpr (!kShort) TakeSecondProduct(previous);
      }
      Weigh(values);
    }
    if (warpgroup == 0) WaitForTurn();
    arch::MbarrierWait(ring.Filled(values), values.phase);
    TakeProducts(values);
  }
};

// Each kind of warp reads the sequence's facts for itself: none has registers
// for what another needs.
__device__ __forceinline__ void ExtendRows(const AttentionArgs& args, int batch,
                                           int kv_head, int row0) {
  const int warp = arch::ThreadIndex() / 32;
  const int lane = arch::ThreadIndex() % 32;
  const Fp8Ring ring = {arch::SharedBase()};
  if (arch::ThreadIndex() == 0) ring.Init();
  arch::BlockSync();
  if (warp >= spec::kWarps) {
    arch::LowerRegisters<kProducerRegisters>();
    const ops::Sequence sequence(args, batch, kv_head);
    const ExtendWork work(sequence, row0);
    Fp8Producer{args, sequence, work, ring, warp % 4, lane}.Run();
    return;
  }
  arch::RaiseRegisters<kConsumerRegisters>();
  const ops::Sequence sequence(args, batch, kv_head);
  const ExtendWork work(sequence, row0);
  const int warpgroup = warp / 4;
  Fp8Consumer consumer = {args, sequence, work, ring, warpgroup, lane};
  LoadFp8Queries(args, sequence, row0, warp, lane, ring.QueryImage(warpgroup),
                 consumer.state);
  arch::AsyncFence();
  arch::NamedSync(kConsumerBarrier + warpgroup, Fp8Ring::kGroupThreads);
  consumer.Attend();
  // The output is in the weights' unit, the sum in that of p s_v / s_v.
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    ops::SoftmaxRow& row = consumer.state.softmax[i];
    row.max2 -= Fp8Weights::kTop;
    row.ref2 = row.max2;
  }
  const ops::Sequence again(args, batch, kv_head);
  WriteRows<Fp8Columns>(args, again, warp, lane, consumer.state);
}

}  // namespace kvforge::kernels

extern "C" __constant__ int kvforge_shared_bytes =
    kvforge::kernels::Fp8Ring::kSharedBytes;
extern "C" __constant__ int kvforge_block_threads =
    kvforge::kernels::Fp8Ring::kThreads;

extern "C" __global__ void __launch_bounds__(
    kvforge::kernels::Fp8Ring::kThreads, 1)
    kvforge_kernel(const __grid_constant__ kvforge::AttentionArgs args) {
  using namespace kvforge;
  const i64 block = arch::BlockCount() - 1 - arch::BlockIndex();
  const i64 tile = block / args.num_kv_heads;
  const int kv_head = static_cast<int>(block % args.num_kv_heads);
  const kernels::TileOfBatch found =
      kernels::FindTile(args, tile, arch::ThreadIndex() % 32);
  if (found.batch < 0) return;
  const ops::Sequence sequence(args, found.batch, kv_head);
  const int row0 = found.tile * spec::kBlockM;
  if (row0 >= sequence.q_len * spec::kGroup) return;
  kernels::ExtendRows(args, found.batch, kv_head, row0);
}
