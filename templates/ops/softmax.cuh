// Online softmax of one query row, in base 2, with a separate reference for the
// weights of V.
//
//   p = 2^(s * log2e - max2)               summed unscaled: the denominator
//   w = ValueWeight(p, s_v) * 2^(max2 - ref2)   narrowed to 16 bit, times V
//
// so that sum(w * v) stands for sum(p * s_v * v) * 2^(max2 - ref2). The largest
// w is kept near 2^kHeadroom: it neither overflows f16 nor falls into its
// subnormals, however the scales of V spread between tokens.
//
// References are raised only when a score passes them by more than kSlack: p
// then stays below 2^kSlack.
#ifndef KVFORGE_TEMPLATES_OPS_SOFTMAX_CUH_
#define KVFORGE_TEMPLATES_OPS_SOFTMAX_CUH_

#include "arch/select.cuh"

namespace kvforge::ops {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;
inline constexpr float kHeadroom = 9.0f;
inline constexpr float kSlack = 6.0f;
// V's reference stays within this many octaves of the scores' own, so that
// 2^(max2 - ref2) is finite where every scale of V is 0.
inline constexpr float kMaxGain = 100.0f;

__device__ __forceinline__ float NegativeInfinity() {
  return arch::FromBits(0xff800000u);
}

struct SoftmaxRow {
  float max2;  // reference of p; -inf until a key was visible
  float ref2;  // reference of w
  float sum;   // of p, over the keys this thread has seen
  float gain;  // 2^(max2 - ref2); 0 until a key was visible

  __device__ __forceinline__ void Clear() {
    max2 = ref2 = NegativeInfinity();
    sum = gain = 0;
  }

  // The unscaled weight of score s.
  __device__ __forceinline__ float Weight(float s) const {
    const float reference = max2 == NegativeInfinity() ? 0.0f : max2;
    return arch::Exp2(arch::Fma(s, kLog2E, -reference));
  }

  // `top2`: largest score in base 2; `value2`: largest log2 of p * s_v relative
  // to p's unit, only where weights are scaled per key.
  template <bool kScaledPerKey>
  __device__ __forceinline__ bool MustRaise(float top2, float value2) const {
    return top2 > max2 + kSlack ||
           (kScaledPerKey && value2 > ref2 + kHeadroom + kSlack);
  }

  // Raises the references to the row's new maxima, rescales the sum and
  // returns the factor for what was accumulated with the old reference.
  template <bool kScaledPerKey>
  __device__ __forceinline__ float Raise(float top2, float value2) {
    const float new_max2 = arch::Max(max2, top2);
    if (new_max2 == NegativeInfinity()) return 1.0f;
    float new_ref2 = new_max2 - kHeadroom;
    if (kScaledPerKey) {
      new_ref2 =
          arch::Max(arch::Max(ref2, value2 - kHeadroom), new_max2 - kMaxGain);
    }
    if (new_max2 != max2) sum = sum * arch::Exp2(max2 - new_max2);
    const float factor = new_ref2 == ref2 ? 1.0f : arch::Exp2(ref2 - new_ref2);
    max2 = new_max2;
    ref2 = new_ref2;
    gain = arch::Exp2(new_max2 - new_ref2);
    return factor;
  }
};

// What a row's state adds up to, once its sum covers all keys.
struct SoftmaxResult {
  float out_factor;  // turns sum(w * v) into the output
  float lse;         // natural log
};

// `sink2`: the sink's logit in base 2, -inf if there is none. Scores that are
// NaN leave no maximum but a sum that is NaN, and so is the result.
__device__ __forceinline__ SoftmaxResult FinishRow(float max2, float ref2,
                                                   float sum, float sink2) {
  const float top2 = arch::Max(max2, sink2);
  if (top2 == NegativeInfinity()) return {sum, NegativeInfinity() + sum};
  const float total = sum * arch::Exp2(max2 - top2) + arch::Exp2(sink2 - top2);
  const float factor =
      max2 == NegativeInfinity() ? 0.0f : arch::Exp2(ref2 - top2) / total;
  return {factor, (top2 + arch::Log2(total)) * kLn2};
}

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_SOFTMAX_CUH_
