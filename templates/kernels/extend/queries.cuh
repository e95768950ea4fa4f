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

// What follows from a query row besides its operands.
struct QueryFacts {
  float inverse;  // of what it was multiplied by
  float sum;  // of its channels, as multiplied; only where a minimum of K is
};

// The sign of the uniform factor of scores. It goes to q, so that the largest
// score has the largest dot.
__device__ __forceinline__ bool FlipsQueries(const AttentionArgs& args,
                                             int kv_head) {
  return spec::ScoreUniform(args, kv_head) < 0;
}

// Row `block_row` of the block's, lane / 4 of 8 that a warp has; where it
// `writes`, as operands.
template <class Place>
__device__ __forceinline__ QueryFacts
LoadQueryRow(const AttentionArgs& args, const ops::Sequence& sequence, int row0,
             int block_row, bool flips, bool writes, int lane, u32 shared) {
  using Shape = ExtendShape;
  const int t = lane % 4;
  // Steps at a time; loaders of items have few registers.
  constexpr int kUnroll = spec::kImages ? 4 / Shape::kQueryParts : 4;
  const ops::QueryRow<KSide::kChannelScale> query = {
      ops::QueryOf<spec::kGroup>(args, sequence, row0 + block_row),
      KSide::kChannelScale ? formats::GivenChannelScales<spec::kHeadDim>(
                                 args.k, sequence.kv_head)
                           : nullptr};
  ops::PowerOfTwo scale = {1.0f, 1.0f};
  if constexpr (spec::kScaleQueryRows) {
    const float amax =
        ops::QueryAmax<spec::QueryElement, Shape::KOrder, kUnroll>(query, t);
    scale = Shape::kUniformInTerms ? ops::NormalizerOfWild(amax)
                                   : ops::Normalizer(amax);
  }
  if (writes) {
#pragma unroll kUnroll
    for (int step = 0; step < Shape::KOrder::kSteps; ++step) {
      u32 words[Shape::kQueryParts][2];
      ops::QueryStep<spec::QueryElement, spec::ScoreOperand, Shape::KOrder>(
          query, step, t, scale.factor, words);
#pragma unroll
      for (int part = 0; part < Shape::kQueryParts; ++part) {
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          arch::StoreShared(Place::Word(shared, part, block_row / 16,
                                        block_row / 8 % 2, step, lane, pair),
                            words[part][pair] ^ (flips ? 0x80008000u : 0));
        }
      }
    }
  }
  float sum = 0;
  if constexpr (KSide::kRowMinimum) {
    sum = ops::QuerySum<spec::QueryElement, Shape::KOrder>(query, t,
                                                           scale.factor) *
          (flips ? -1.0f : 1.0f);
  }
  return {scale.inverse, sum};
}

// The state before the first key.
__device__ __forceinline__ void ClearState(ExtendState& state) {
  using Shape = ExtendShape;
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

// Writes the block's rows as operands and sets this thread's rows.
template <class Place>
__device__ __forceinline__ void LoadQueries(const AttentionArgs& args,
                                            const ops::Sequence& sequence,
                                            int row0, int warp, int lane,
                                            u32 shared, ExtendState& state) {
  using Shape = ExtendShape;
  const int g = lane / 4;
  const int row_warp = warp % Shape::kRowWarps;
  const float uniform = arch::Abs(spec::ScoreUniform(args, sequence.kv_head));
  const bool flips = FlipsQueries(args, sequence.kv_head);
  state.first_row = row0 + row_warp * Shape::kWarpRows + g;
  // One body for all rows: it is long, and runs once.
#pragma unroll 1
  for (int i = 0; i < ExtendState::kRows; ++i) {
    const QueryFacts facts = LoadQueryRow<Place>(
        args, sequence, row0, row_warp * Shape::kWarpRows + 8 * i + g, flips,
        warp < Shape::kRowWarps, lane, shared);
#pragma unroll
    for (int j = 0; j < ExtendState::kRows; ++j) {
      if (j != i) continue;  // registers have no index
      state.SetUniform(j, facts.inverse, uniform);
      state.q_sum[j] = facts.sum;
    }
  }
  ClearState(state);
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_QUERIES_CUH_
