// Sizes of a decode block, and what one of its consumer warps holds.
#ifndef KVFORGE_TEMPLATES_KERNELS_DECODE_SHAPE_CUH_
#define KVFORGE_TEMPLATES_KERNELS_DECODE_SHAPE_CUH_

#include "ops/fragments.cuh"
#include "ops/key_tile.cuh"
#include "ops/query_row.cuh"
#include "ops/score_bias.cuh"
#include "ops/softmax.cuh"
#include "ops/visible_keys.cuh"

namespace kvforge::kernels {

using spec::KSide;
using spec::VSide;

struct DecodeShape {
  using KGroup = ops::KeyGroup<KSide, spec::kHeadDim>;
  using VGroup = ops::KeyGroup<VSide, spec::kValueDim>;
  using KOrder = ops::ChannelOrder<KSide, spec::kHeadDim>;
  using VOrder = ops::ValueOrder<VSide, spec::kValueDim>;
  static constexpr bool kDotBlocks = ops::kBlockFactors<KSide>;
  static constexpr bool kWeightBlocks = ops::kBlockFactors<VSide>;

  // Warps that only copy, behind those that compute.
  static constexpr int kSideProducers =
      spec::kWarps >= 4 ? 2 : 1;  // of K, of V
  // A producer that missed a use of a stage could not tell it by its parity.
  static_assert(spec::kStages >= kSideProducers);
  static constexpr int kProducers = 2 * kSideProducers;
  static constexpr int kConsumerThreads = spec::kWarps * 32;
  static constexpr int kThreads = kConsumerThreads + kProducers * 32;
  static constexpr int kRowTiles = spec::kBlockM / 8;  // N tiles of 8 rows
  static constexpr int kMTiles = spec::kValueDim / 16;
  // Partial sums of S; a head_dim of 512 leaves registers for one.
  static constexpr int kSums = KOrder::kSteps < 32 && !kDotBlocks ? 2 : 1;

  // Whether a warp reads a whole piece before it computes.
  using KeyRun = ops::KeyRun<KSide, spec::kHeadDim>;
  using ValueRun = ops::ValueRun<VSide, spec::kValueDim>;
  static constexpr int kKeyParts = KOrder::kRuns * KeyRun::kParts;
  static constexpr bool kLoadAhead = !kDotBlocks && !kWeightBlocks &&
                                     2 * kKeyParts * KeyRun::kWords <= 16 &&
                                     4 * VOrder::kRuns * ValueRun::kWords <= 16;

  // q as B operands in fragment order, where registers cannot hold it.
  static constexpr int kQueryParts =
      ops::kQueryParts<spec::QueryElement, spec::ScoreOperand,
                       KSide::kChannelScale>;
  static constexpr bool kQueryInShared =
      spec::kHeadDim > 256 || kQueryParts > 1;
  static constexpr int kQueryBytes =
      kQueryInShared ? kQueryParts * spec::kBlockM * spec::kHeadDim * 2 : 0;

  // A stage holds 16 keys of K and V for each consumer warp: the warps' codes
  // of K, then of V, each from a multiple of 1024 bytes on, as the swizzle of
  // tensor copies needs them. The scales of all stages follow: of a stage the
  // warps' row scales of K, of V, then their block scales.
  static constexpr int kKCodesBytes =
      (spec::kWarps * KGroup::kCodesBytes + 1023) / 1024 * 1024;
  static constexpr int kVCodesBytes =
      (spec::kWarps * VGroup::kCodesBytes + 1023) / 1024 * 1024;
  static constexpr int kStageBytes = kKCodesBytes + kVCodesBytes;
  static constexpr int kVRowScales = spec::kWarps * KGroup::kBlockScales;
  static constexpr int kKBlockScales =
      kVRowScales + spec::kWarps * VGroup::kBlockScales;
  static constexpr int kVBlockScales =
      kKBlockScales +
      spec::kWarps * (KGroup::kScaleBytes - KGroup::kBlockScales);
  static constexpr int kStageScaleBytes =
      spec::kWarps * (KGroup::kScaleBytes + VGroup::kScaleBytes);

  // The warps' partial rows meet here, so many tiles of 16 channels at a time:
  // of each tile of 8 rows pairs of f32 channels, padded so that a row's lie in
  // all banks, then max2, ref2, sum and a pad a row.
  static constexpr int kRoundTiles = 4;
  static constexpr int kExchangePitch = 264;
  static constexpr int kExchangeTileBytes =
      2 * kRoundTiles * kExchangePitch + 8 * 16;
  static constexpr int kExchangeBytes =
      spec::kWarps * kRowTiles * kExchangeTileBytes;
  static_assert(kMTiles >= kRoundTiles);

  // Bytes from the start of shared memory, where the stages are.
  static constexpr int kScales = spec::kStages * kStageBytes;
  static constexpr int kQuery = kScales + spec::kStages * kStageScaleBytes;
  static constexpr int kExchange = kQuery + kQueryBytes;
  // What a piece holds: its first key, then the keys of the sequence that may
  // be read, from and to; 16 bytes a stage and warp.
  static constexpr int kNotes = kExchange + kExchangeBytes;
  static constexpr int kArrivals = kNotes + 16 * spec::kStages * spec::kWarps;
  // Two barriers a stage: filled, and free again.
  static constexpr int kShare = kArrivals + 16;
  static constexpr int kBarriers = kShare + 48;
  static constexpr int kSharedBytes = kBarriers + 16 * spec::kStages;

  static_assert(spec::kBlockN == 16 * spec::kWarps);
  static_assert(spec::kBlockM % 8 == 0);
};

// One warp's query rows: this thread holds rows 2t and 2t + 1 of each tile
// of 8.
struct DecodeState {
  using Shape = DecodeShape;
  u32 q[Shape::kRowTiles][Shape::kQueryInShared ? 1 : Shape::KOrder::kSteps][2];
  float uniform[Shape::kRowTiles][2];
  float q_sum[Shape::kRowTiles][2];  // of the row's channels
  ops::KeyRange visible[Shape::kRowTiles][2];
  ops::KeyRange common;            // keys that all of the warp's rows see
  int token[Shape::kRowTiles][2];  // kCustomMask only
  ops::ScoreBias::Row bias[Shape::kRowTiles][2];  // kScoreBias only
  ops::SoftmaxRow softmax[Shape::kRowTiles][2];
  static constexpr int kBlocks =
      Shape::kWeightBlocks ? Shape::VOrder::kRuns : 1;
  ops::BlockReference blocks[Shape::kRowTiles][2][kBlocks];
  float out[Shape::kRowTiles][Shape::kMTiles][4];
};

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_DECODE_SHAPE_CUH_
