// extend/e4m3_head/d128/g4/page16/bf16/compute=fp8/softcap=30/v=e4m3_row for sm_90, tile 128x128/4/8/warpgroups
#include "arch/select.cuh"
#include "formats/element.cuh"
#include "formats/operand.cuh"
#include "formats/e4m3_operand.cuh"
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
constexpr int kBlockM = 128;
constexpr int kBlockN = 128;
constexpr int kStages = 4;
constexpr int kWarps = 8;
constexpr bool kWarpgroups = true;
constexpr bool kImages = false;
using QueryElement = formats::Bf16;
using OutElement = formats::Bf16;
using ScoreOperand = formats::E4m3Operand;
using ValueOperand = formats::E4m3Operand;
constexpr bool kScaleQueryRows = true;
constexpr bool kScoreIsProduct = false;

struct KSide {
  static constexpr int kCodeBits = 8;
  static constexpr bool kRowScale = false;
  static constexpr bool kRowMinimum = false;
  static constexpr bool kChannelScale = false;  // given
  static constexpr int kBlock = 0;
  // Whether Decode4 multiplies by block scales; else they are factors.
  static constexpr bool kBlockInOperand = false;
  // A block scale code to the factor of a partial dot or a weight.
  static __device__ float BlockFactor(u32 code);
  // Two block scale codes to a pair of operands.
  static __device__ u32 BlockScalePair(u32 first, u32 second);
  // Declared only: codes are operands as they are.
  static __device__ void Decode4(u32 lo, u32 hi, u32 block_scales, u32 (&out)[2]);
};
struct VSide {
  static constexpr int kCodeBits = 8;
  static constexpr bool kRowScale = true;
  static constexpr bool kRowMinimum = false;
  static constexpr bool kChannelScale = false;  // given
  static constexpr int kBlock = 0;
  // Whether Decode4 multiplies by block scales; else they are factors.
  static constexpr bool kBlockInOperand = false;
  // A block scale code to the factor of a partial dot or a weight.
  static __device__ float BlockFactor(u32 code);
  // Two block scale codes to a pair of operands.
  static __device__ u32 BlockScalePair(u32 first, u32 second);
  // Declared only: codes are operands as they are.
  static __device__ void Decode4(u32 lo, u32 hi, u32 block_scales, u32 (&out)[2]);
};

// One value for all keys of a query row.
__device__ float ScoreUniform(const AttentionArgs& args, int kv_head) {
  float s = formats::GivenHeadScale(args.k, kv_head);
  s = s * args.sm_scale;
  return s;
}
// One score, natural units, from the dot of q and k; q_sum is the sum of q's channels.
__device__ float ScoreMap(float dot, float uniform, float /*k_row_scale*/,
                          float /*q_sum*/, float /*k_minimum*/) {
  float s = dot;
  s = s * uniform;
  s = formats::Softcap(s, 30.0f);
  return s;
}
// Whether ScoreMap multiplies by `uniform` behind all else.
constexpr bool kUniformLast = false;
// The user's function of a score; kScoreFunction only.
__device__ float UserScore(float score, i32 q_position, i32 kv_position, i32 q_head);
// The weight of one V row from the unscaled softmax weight.
__device__ float ValueWeight(float p, float v_row_scale) {
  p = p * v_row_scale;
  return p;
}
constexpr bool kValueWeightScaled = true;  // ValueWeight depends on the key
// One value for all elements of an output row.
__device__ float OutUniform(const AttentionArgs& /*args*/, int /*kv_head*/) {
  float o = 1.0f;
  return o;
}

}  // namespace kvforge::spec

#include "kernels/extend_fp8.cuh"
