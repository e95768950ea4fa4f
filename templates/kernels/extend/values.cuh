// The output of a warp's rows: weights times codes of V.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_VALUES_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_VALUES_CUH_

#include "kernels/extend/shape.cuh"
#include "kernels/extend/stage.cuh"

namespace kvforge::kernels {

// The operand of weights of block `run` of the warp's channels from p of the 16
// keys of `v_group`, which `p` holds as S does: tiles of 8 keys `half` 0 and 1.
__device__ __forceinline__ void BlockWeights(
    const float (&p)[ExtendShape::kMTiles][2][4], ops::GroupPlace v_group,
    int dim_part, int run, int t, ExtendState& state,
    u32 (&weights)[ExtendShape::kMTiles][4]) {
  using Shape = ExtendShape;
  float factor[2][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      factor[half][j] = ops::LoadBlockFactor<VSide, spec::kValueDim>(
          v_group, 8 * half + 2 * t + j, dim_part * Shape::kRuns + run);
    }
  }
  const auto weigh = [&] {
    bool raise = false;
#pragma unroll
    for (int i = 0; i < ExtendState::kRows; ++i) {
      const ops::SoftmaxRow& row = state.softmax[i];
      const ops::BlockReference& block = state.blocks[i][run];
      const float gain = block.Gain(row);
      float largest = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float w[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          w[j] = p[i / 2][half][i % 2 * 2 + j] * gain * factor[half][j];
          largest = arch::Max(largest, w[j]);
        }
        weights[i / 2][2 * half + i % 2] = spec::ValueOperand::Pack(w[0], w[1]);
      }
      raise |= block.MustRaise(row, largest);
    }
    return raise;
  };
  if (!arch::WarpAny(weigh())) return;
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    float value2 = ops::NegativeInfinity();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        value2 = arch::Max(value2, arch::Log2(p[i / 2][half][i % 2 * 2 + j]) +
                                       arch::Log2(factor[half][j]));
      }
    }
    value2 = arch::Max(value2, arch::ShuffleXor(value2, 1));
    value2 = arch::Max(value2, arch::ShuffleXor(value2, 2));
    const float rescale = state.blocks[i][run].Raise(state.softmax[i], value2);
#pragma unroll
    for (int n = run * Shape::VOrder::kLaneChannels;
         n < (run + 1) * Shape::VOrder::kLaneChannels; ++n) {
      state.out[i / 2][n][i % 2 * 2] *= rescale;
      state.out[i / 2][n][i % 2 * 2 + 1] *= rescale;
    }
  }
  weigh();
}

// out += weights * V over the warp's channels; where a key is `heavy`, once
// more with what the weights lost when they were narrowed.
__device__ __forceinline__ void Accumulate(
    ExtendStage stage, int group0, int dim_part, int lane, bool heavy,
    const float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4],
    ExtendState& state) {
  using Shape = ExtendShape;
  const int parts = Shape::kTwoPartWeights && heavy ? 2 : 1;
#pragma unroll
  for (int group = 0; group < Shape::kStepKeys / 16; ++group) {
    u32 weights[Shape::kMTiles][4];
    u32 rest[Shape::kMTiles][4];    // of heavy weights
    float p[Shape::kMTiles][2][4];  // where weights differ by block
#pragma unroll
    for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float(&w)[4] = s[m][2 * group + half];
#pragma unroll
        for (int c = 0; c < 4; ++c) p[m][half][c] = w[c];
        if constexpr (!Shape::kWeightBlocks) {
          weights[m][2 * half] = spec::ValueOperand::Pack(w[0], w[1]);
          weights[m][2 * half + 1] = spec::ValueOperand::Pack(w[2], w[3]);
        }
      }
    }
    if constexpr (Shape::kTwoPartWeights) {
      if (heavy) {
#pragma unroll
        for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float(&w)[4] = s[m][2 * group + i / 2];
            rest[m][i] = ops::NarrowingRest<spec::ValueOperand>(
                w[i % 2 * 2], w[i % 2 * 2 + 1], weights[m][i]);
          }
        }
      }
    }
    const ops::GroupPlace v_group = stage.Values(group0 + group);
#pragma unroll 1
    for (int part = 0;; ++part) {
#pragma unroll
      for (int run = 0; run < Shape::kRuns; ++run) {
        ops::ValueRun<VSide, spec::kValueDim> values;
        values.Load(v_group, dim_part * Shape::kRuns + run, lane / 4, lane % 4);
        if constexpr (Shape::kWeightBlocks) {
          BlockWeights(p, v_group, dim_part, run, lane % 4, state, weights);
        }
#pragma unroll
        for (int pair = 0; pair < Shape::VOrder::kLaneChannels / 2; ++pair) {
          u32 v[2][2];
          values.Decode(pair, v);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int n = run * Shape::VOrder::kLaneChannels + 2 * pair + i;
#pragma unroll
            for (int m = 0; m < Shape::kMTiles; ++m) {
              spec::ValueOperand::Mma(state.out[m][n], weights[m], v[i]);
            }
          }
        }
      }
      if (part + 1 == parts) break;
#pragma unroll
      for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) weights[m][i] = rest[m][i];
      }
    }
  }
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_VALUES_CUH_
