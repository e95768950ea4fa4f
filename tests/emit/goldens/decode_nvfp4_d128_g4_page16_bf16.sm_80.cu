// decode/nvfp4/d128/g4/page16/bf16 for sm_80, tile 8x64/2/4
#include "arch/select.cuh"
#include "formats/element.cuh"
#include "formats/operand.cuh"
#include "formats/e2m1.cuh"
#include "formats/e4m3.cuh"
#include "kernels/attention_args.h"

namespace kvforge::spec {

constexpr int kHeadDim = 128;
constexpr int kValueDim = 128;
constexpr int kGroup = 4;
constexpr int kPageSize = 16;
constexpr bool kCausal = true;
constexpr int kWindow = 0;
constexpr bool kCustomMask = false;
constexpr int kSparseBlock = 0;
constexpr bool kAlibi = false;
constexpr bool kScoreFunction = false;
constexpr bool kSinks = false;
constexpr int kBlockM = 8;
constexpr int kBlockN = 64;
constexpr int kStages = 2;
constexpr int kWarps = 4;
constexpr bool kTensorCopies = false;
using QueryElement = formats::Bf16;
using OutElement = formats::Bf16;
using ScoreOperand = formats::F16Operand;
using ValueOperand = formats::F16Operand;
constexpr bool kScaleQueryRows = true;

struct KSide {
  static constexpr int kCodeBits = 4;
  static constexpr bool kRowScale = false;
  static constexpr bool kRowMinimum = false;
  static constexpr bool kChannelScale = false;  // given
  static constexpr int kBlock = 16;
  // Whether Decode4 multiplies by block scales; else they are factors.
  static constexpr bool kBlockInOperand = true;
  // A block scale code to the factor of a partial dot or a weight.
  static __device__ float BlockFactor(u32 code);
  // Two block scale codes to a pair of operands.
  static __device__ u32 BlockScalePair(u32 first, u32 second) {
    return formats::E4m3ScalePairPlaced(first, second);
  }
  // The codes in lo's low (hi 0) or high nibbles to two pairs of operands.
  static __device__ void Decode4(u32 lo, u32 hi, u32 block_scales, u32 (&out)[2]) {
    formats::E2m1ToF16Placed4(lo, hi, out);
    out[0] = arch::MulF16x2(out[0], block_scales);
    out[1] = arch::MulF16x2(out[1], block_scales);
  }
};
struct VSide {
  static constexpr int kCodeBits = 4;
  static constexpr bool kRowScale = false;
  static constexpr bool kRowMinimum = false;
  static constexpr bool kChannelScale = false;  // given
  static constexpr int kBlock = 16;
  // Whether Decode4 multiplies by block scales; else they are factors.
  static constexpr bool kBlockInOperand = true;
  // A block scale code to the factor of a partial dot or a weight.
  static __device__ float BlockFactor(u32 code);
  // Two block scale codes to a pair of operands.
  static __device__ u32 BlockScalePair(u32 first, u32 second) {
    return formats::E4m3ScalePairPlaced(first, second);
  }
  // The codes in lo's low (hi 0) or high nibbles to two pairs of operands.
  static __device__ void Decode4(u32 lo, u32 hi, u32 block_scales, u32 (&out)[2]) {
    formats::E2m1ToF16Placed4(lo, hi, out);
    out[0] = arch::MulF16x2(out[0], block_scales);
    out[1] = arch::MulF16x2(out[1], block_scales);
  }
};

// One value for all keys of a query row.
__device__ float ScoreUniform(const AttentionArgs& args, int /*kv_head*/) {
  float s = formats::GivenScale(args.k);
  s = s * 0x1p14f;
  s = s * args.sm_scale;
  return s;
}
// One score, natural units, from the dot of q and k; q_sum is the sum of q's channels.
__device__ float ScoreMap(float dot, float uniform, float /*k_row_scale*/,
                          float /*q_sum*/, float /*k_minimum*/) {
  float s = dot;
  s = s * uniform;
  return s;
}
// Whether ScoreMap multiplies by `uniform` behind all else.
constexpr bool kUniformLast = true;
// The user's function of a score; kScoreFunction only.
__device__ float UserScore(float score, i32 q_position, i32 kv_position, i32 q_head);
// The weight of one V row from the unscaled softmax weight.
__device__ float ValueWeight(float p, float /*v_row_scale*/) {
  return p;
}
constexpr bool kValueWeightScaled = false;  // ValueWeight depends on the key
// One value for all elements of an output row.
__device__ float OutUniform(const AttentionArgs& args, int /*kv_head*/) {
  float o = 1.0f;
  o = o * formats::GivenScale(args.v);
  o = o * 0x1p14f;
  return o;
}

}  // namespace kvforge::spec

#include "kernels/decode.cuh"
