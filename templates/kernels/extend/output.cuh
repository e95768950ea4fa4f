// The end of a block: rows are normalised and written.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_OUTPUT_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_OUTPUT_CUH_

#include "kernels/extend/shape.cuh"
#include "ops/attention_row.cuh"

namespace kvforge::kernels {

// The channels of the thread's row i as products of a warpgroup leave them:
// column 8 n + j of V's images is channel j of the eight that lane n % 4 of a
// converter read, of steps n / 4 * 2 and the next.
struct OperandColumns {
  static __device__ __forceinline__ void Store(const AttentionArgs& args,
                                               int kv_head, int t, int i,
                                               float factor,
                                               const ExtendState& state,
                                               u8* out) {
    using Element = spec::OutElement;
    using Order = ops::ChannelOrder<VSide, spec::kValueDim>;
#pragma unroll
    for (int n = 0; n < ExtendShape::kNTiles; ++n) {
      const int channel =
          Order::ChannelOf(n / 4 * 2 + t / 2, n % 4) + t % 2 * 2;
      float x[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        x[c] = state.out[i / 2][n][i % 2 * 2 + c] * factor;
        if constexpr (VSide::kChannelScale) {
          const float* scales =
              formats::GivenChannelScales<spec::kValueDim>(args.v, kv_head);
          x[c] *= arch::LoadGlobal<float>(scales + channel + c);
        }
      }
      u32 words[Element::kBytes / 2];
      Element::FromF32x2(x[0], x[1], words);
      ops::StoreBytes<2 * Element::kBytes>(out + channel * Element::kBytes,
                                           2 * Element::kBytes, words);
    }
  }
};

// Normalises the warp's rows and writes them; Columns: of products of a
// warpgroup.
template <class Columns = OperandColumns>
__device__ __forceinline__ void WriteRows(const AttentionArgs& args,
                                          const ops::Sequence& sequence,
                                          int warp, int lane,
                                          ExtendState& state) {
  using Shape = ExtendShape;
  using Element = spec::OutElement;
  constexpr int kLaneChannels = Shape::VOrder::kLaneChannels;
  constexpr int kLaneBytes = kLaneChannels * Element::kBytes;
  const int t = lane % 4;
  const int dim_part = warp / Shape::kRowWarps;
  const float out_uniform = spec::OutUniform(args, sequence.kv_head);
  // What the lanes of a row add up comes ahead of all branches.
  float sum[ExtendState::kRows];
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    ops::SoftmaxRow& softmax = state.softmax[i];
    if constexpr (Shape::kWeightBlocks) {
      float factors[ExtendState::kBlocks];
      ops::JoinBlocks(state.blocks[i], softmax, factors);
#pragma unroll
      for (int b = 0; b < ExtendState::kBlocks; ++b) {
#pragma unroll
        for (int n = b * kLaneChannels; n < (b + 1) * kLaneChannels; ++n) {
          state.out[i / 2][n][i % 2 * 2] *= factors[b];
          state.out[i / 2][n][i % 2 * 2 + 1] *= factors[b];
        }
      }
    }
    if constexpr (VSide::kRowMinimum) {
      float shift = softmax.shift;
      shift += arch::ShuffleXor(shift, 1);
      shift += arch::ShuffleXor(shift, 2);
      const float factor = softmax.ToUnitOfP();
#pragma unroll
      for (int n = 0; n < Shape::kNTiles; ++n) {
        float(&out)[4] = state.out[i / 2][n];
#pragma unroll
        for (int j = i % 2 * 2; j < i % 2 * 2 + 2; ++j) {
          out[j] = arch::Fma(out[j], factor, shift);
        }
      }
    }
    sum[i] = softmax.sum;
    sum[i] += arch::ShuffleXor(sum[i], 1);
    sum[i] += arch::ShuffleXor(sum[i], 2);
  }
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    const ops::SoftmaxRow& softmax = state.softmax[i];
    const int row = state.first_row + 8 * i;
    if (row >= sequence.q_len * spec::kGroup) continue;
    const float sink2 =
        ops::SinkOf<spec::kGroup, spec::kSinks>(args, sequence, row);
    const ops::SoftmaxResult result =
        ops::FinishRow(softmax.max2, softmax.ref2, sum[i], sink2);
    const float factor = result.out_factor * out_uniform;
    const i64 token = ops::TokenOf<spec::kGroup>(sequence, row);
    const i64 head = ops::HeadOf<spec::kGroup>(sequence, row);
    u8* out =
        args.out + token * args.out_token_stride + head * args.out_head_stride;
    if constexpr (spec::kWarpgroups) {
      Columns::Store(args, sequence.kv_head, t, i, factor, state, out);
    }
#pragma unroll
    for (int run = 0; run < (spec::kWarpgroups ? 0 : Shape::kRuns); ++run) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        // Column 2t + c of the run's tiles: the channels of lane row g = 2t + c
        // of V, neighbours.
        const int channel =
            (dim_part * Shape::kRuns + run) * Shape::VOrder::kRunChannels +
            (2 * t + c) * kLaneChannels;
        float x[kLaneChannels];
#pragma unroll
        for (int k = 0; k < kLaneChannels; ++k) {
          const int n = run * kLaneChannels + k;
          x[k] = state.out[i / 2][n][i % 2 * 2 + c] * factor;
          if constexpr (VSide::kChannelScale) {
            const float* scales = formats::GivenChannelScales<spec::kValueDim>(
                args.v, sequence.kv_head);
            x[k] *= arch::LoadGlobal<float>(scales + channel + k);
          }
        }
        u32 words[kLaneBytes / 4];
#pragma unroll
        for (int k = 0; k < kLaneChannels; k += 2) {
          Element::FromF32x2(x[k], x[k + 1], &words[k * Element::kBytes / 4]);
        }
        ops::StoreBytes<kLaneBytes>(out + channel * Element::kBytes, kLaneBytes,
                                    words);
      }
    }
    if (t == 0 && dim_part == 0 && args.lse != nullptr) {
      arch::StoreGlobal(args.lse + token * args.lse_token_stride + head,
                        result.lse);
    }
  }
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_OUTPUT_CUH_
