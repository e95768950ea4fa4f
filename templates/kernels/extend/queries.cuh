// The query rows of a block: to operands in shared memory, with each row's
// scale and empty softmax.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_QUERIES_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_QUERIES_CUH_

#include "kernels/extend/shape.cuh"
#include "ops/attention_row.cuh"

namespace kvforge::kernels {

// Shared address of the A operand of (part, 16 rows, step) for this lane.
__device__ __forceinline__ u32 QueryFragment(u32 shared, int part, int m_tile,
                                             int step, int lane) {
  const int tile = part * (spec::kBlockM / 16) + m_tile;
  return shared +
         ((tile * ExtendShape::KOrder::kSteps + step) * 32 + lane) * 16;
}

// Where LoadQueries puts them: registers of an A operand are (row g, k), (row
// g + 8, k), (row g, k + 8), (row g + 8, k + 8).
struct QueryFragments {
  // Of word `pair` of a step's channels; of row lane / 4 of 16, or of the one 8
  // on (half 1).
  static __device__ __forceinline__ u32 Word(u32 shared, int part, int m_tile,
                                             int half, int step, int lane,
                                             int pair) {
    return QueryFragment(shared, part, m_tile, step, lane) + half * 4 +
           pair * 8;
  }
};

// Writes the block's rows as operands and reads this thread's row facts.
template <class Place>
__device__ __forceinline__ void LoadQueries(const AttentionArgs& args,
                                            const ops::Sequence& sequence,
                                            int row0, int warp, int lane,
                                            u32 shared, ExtendState& state) {
  using Shape = ExtendShape;
  const int g = lane / 4;
  const int t = lane % 4;
  const int row_warp = warp % Shape::kRowWarps;
  // Its sign goes to q, so that the largest score has the largest dot.
  const float signed_uniform = spec::ScoreUniform(args, sequence.kv_head);
  const float uniform = arch::Abs(signed_uniform);
  const float sign = signed_uniform < 0 ? -1.0f : 1.0f;
  const u32 flip = signed_uniform < 0 ? 0x80008000u : 0;
  state.first_row = row0 + row_warp * Shape::kWarpRows + g;
  // Steps at a time. With images this runs for every item, and nothing hides
  // the time of its loads.
  constexpr int kUnroll = spec::kImages ? 8 : 4;
  // One body for all rows: it is long, and runs once.
#pragma unroll 1
  for (int i = 0; i < ExtendState::kRows; ++i) {
    const int block_row = row_warp * Shape::kWarpRows + 8 * i + g;
    const ops::QueryRow<KSide::kChannelScale> query = {
        ops::QueryOf<spec::kGroup>(args, sequence, row0 + block_row),
        KSide::kChannelScale ? formats::GivenChannelScales<spec::kHeadDim>(
                                   args.k, sequence.kv_head)
                             : nullptr};
    ops::PowerOfTwo scale = {1.0f, 1.0f};
    if constexpr (spec::kScaleQueryRows) {
      scale = ops::Normalizer(
          ops::QueryAmax<spec::QueryElement, Shape::KOrder, kUnroll>(query, t));
    }
    if (warp < Shape::kRowWarps) {
      const int m_tile = block_row / 16;
#pragma unroll kUnroll
      for (int step = 0; step < Shape::KOrder::kSteps; ++step) {
        u32 words[Shape::kQueryParts][2];
        ops::QueryStep<spec::QueryElement, spec::ScoreOperand, Shape::KOrder>(
            query, step, t, scale.factor, words);
#pragma unroll
        for (int part = 0; part < Shape::kQueryParts; ++part) {
#pragma unroll
          for (int pair = 0; pair < 2; ++pair) {
            arch::StoreShared(
                Place::Word(shared, part, m_tile, i % 2, step, lane, pair),
                words[part][pair] ^ flip);
          }
        }
      }
    }
    float q_sum = 0;
    if constexpr (KSide::kRowMinimum) {
      q_sum = ops::QuerySum<spec::QueryElement, Shape::KOrder>(query, t,
                                                               scale.factor) *
              sign;
    }
#pragma unroll
    for (int j = 0; j < ExtendState::kRows; ++j) {
      if (j != i) continue;  // registers have no index
      state.SetUniform(j, uniform * scale.inverse);
      state.q_sum[j] = q_sum;
    }
  }
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    state.softmax[i].Clear();
    if constexpr (Shape::kTwoPartWeights) {
      state.heavy2[i] = ops::NegativeInfinity();
    }
    for (ops::BlockReference& block : state.blocks[i]) block.Clear();
  }
#pragma unroll
  for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::kNTiles; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) state.out[m][n][c] = 0;
    }
  }
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_QUERIES_CUH_
