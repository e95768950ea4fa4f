// The query rows of a decode segment: to operands, with each row's scale,
// visible keys and empty softmax.
#ifndef KVFORGE_TEMPLATES_KERNELS_DECODE_QUERIES_CUH_
#define KVFORGE_TEMPLATES_KERNELS_DECODE_QUERIES_CUH_

#include "kernels/decode/shape.cuh"
#include "ops/attention_row.cuh"

namespace kvforge::kernels {

// Shared address of the B operand of (part, 8 rows, step) for this lane.
__device__ __forceinline__ u32 QueryFragment(u32 shared, int part, int row_tile,
                                             int step, int lane) {
  const int tile = part * DecodeShape::kRowTiles + row_tile;
  return shared + DecodeShape::kQuery +
         ((tile * DecodeShape::KOrder::kSteps + step) * 32 + lane) * 8;
}

// A row of 16-bit elements to operands in registers, where its words wait until
// its power of two is known.
template <class Shape>
__device__ __forceinline__ ops::PowerOfTwo LoadQueryRow(
    const u8* values, int t, u32 (&q)[Shape::KOrder::kSteps][2]) {
  using Element = spec::QueryElement;
  using Order = typename Shape::KOrder;
  static_assert(Element::kBytes == 2 && Shape::kQueryParts == 1);
#pragma unroll
  for (int step = 0; step < Order::kSteps; ++step) {
    ops::LoadQueryWords<Element, Order>(values, step, t, q[step]);
  }
  ops::PowerOfTwo scale = {1.0f, 1.0f};
  if constexpr (spec::kScaleQueryRows) {
    float amax = 0;
#pragma unroll
    for (int step = 0; step < Order::kSteps; ++step) {
      float x[4];
      ops::QueryValues<Element, Order>(q[step], x);
#pragma unroll
      for (int i = 0; i < 4; ++i) amax = arch::Max(amax, arch::Abs(x[i]));
    }
    scale = ops::Normalizer(ops::RowAmax(amax));
  }
#pragma unroll
  for (int step = 0; step < Order::kSteps; ++step) {
    float x[4];
    u32 words[Shape::kQueryParts][2];
    ops::QueryValues<Element, Order>(q[step], x);
    ops::QueryOperands<Element, spec::ScoreOperand, KSide::kChannelScale>(
        x, scale.factor, words);
    q[step][0] = words[0][0];
    q[step][1] = words[0][1];
  }
  return scale;
}

// Shape: DecodeShape. As a parameter, so that only one way is compiled.
template <class Shape>
__device__ __forceinline__ void LoadQueries(const AttentionArgs& args,
                                            const ops::Sequence& sequence,
                                            int row0, u32 shared, int warp,
                                            int g, int t, DecodeState& state) {
  using Order = typename Shape::KOrder;
  const float uniform = spec::ScoreUniform(args, sequence.kv_head);
#pragma unroll
  for (int r = 0; r < Shape::kRowTiles; ++r) {
    const ops::QueryRow<KSide::kChannelScale> row = {
        ops::QueryOf<spec::kGroup>(args, sequence, row0 + 8 * r + g),
        KSide::kChannelScale ? formats::GivenChannelScales<spec::kHeadDim>(
                                   args.k, sequence.kv_head)
                             : nullptr};
    ops::PowerOfTwo scale = {1.0f, 1.0f};
    float q_sum = 0;
    if constexpr (Shape::kQueryInShared) {
      if constexpr (spec::kScaleQueryRows) {
        scale =
            ops::Normalizer(ops::QueryAmax<spec::QueryElement, Order>(row, t));
      }
      for (int step = warp; step < Order::kSteps; step += spec::kWarps) {
        u32 parts[Shape::kQueryParts][2];
        ops::QueryStep<spec::QueryElement, spec::ScoreOperand, Order>(
            row, step, t, scale.factor, parts);
#pragma unroll
        for (int part = 0; part < Shape::kQueryParts; ++part) {
          U32x2 words;
          words.v[0] = parts[part][0];
          words.v[1] = parts[part][1];
          arch::StoreShared(QueryFragment(shared, part, r, step, 4 * g + t),
                            words);
        }
      }
    } else {
      scale = LoadQueryRow<Shape>(row.values, t, state.q[r]);
    }
    if constexpr (KSide::kRowMinimum) {
      q_sum = ops::QuerySum<spec::QueryElement, Order>(row, t, scale.factor);
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float inverse = arch::ShuffleFrom(scale.inverse, (2 * t + c) * 4);
      state.uniform[r][c] = uniform * inverse;
      state.q_sum[r][c] = arch::ShuffleFrom(q_sum, (2 * t + c) * 4);
      const int token = (row0 + 8 * r + 2 * t + c) / spec::kGroup;
      state.visible[r][c] = ops::VisibleKeys<spec::kCausal, spec::kWindow>(
          sequence.kv_len, sequence.q_len, token);
      if constexpr (spec::kCustomMask) {
        state.token[r][c] = token;
        if (token >= sequence.q_len) state.visible[r][c] = {0, 0};
      }
      if constexpr (ops::kScoreBias) {
        state.bias[r][c] =
            ops::ScoreBias::Of(args, sequence, row0 + 8 * r + 2 * t + c);
      }
      state.softmax[r][c].Clear();
      for (ops::BlockReference& block : state.blocks[r][c]) block.Clear();
    }
#pragma unroll
    for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
      for (int c = 0; c < 4; ++c) state.out[r][m][c] = 0;
    }
  }
  state.common = state.visible[0][0];
#pragma unroll
  for (int r = 0; r < Shape::kRowTiles; ++r) {
#pragma unroll
    for (int c = 0; c < 2; ++c) state.common.Narrow(state.visible[r][c]);
  }
#pragma unroll
  for (int mask = 1; mask < 4; mask *= 2) {
    state.common.Narrow({arch::ShuffleXor(state.common.first, mask),
                         arch::ShuffleXor(state.common.end, mask)});
  }
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_DECODE_QUERIES_CUH_
