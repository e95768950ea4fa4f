// The maximum and scale of a row that several lanes hold, and the integer codes
// of its quotients.
#ifndef KVFORGE_TEMPLATES_FORMATS_ROW_SCALE_CUH_
#define KVFORGE_TEMPLATES_FORMATS_ROW_SCALE_CUH_

#include "arch/select.cuh"

namespace kvforge::formats {

inline constexpr float kMaxF32 = 3.402823466e+38f;
inline constexpr float kMinAmax = 1e-10f;

// max |x| of a lane's 16 values; NaN if one of them is.
__device__ __forceinline__ float LaneAmax(const float (&x)[16]) {
  float amax = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) amax = arch::MaxNan(amax, arch::Abs(x[i]));
  return amax;
}

// max over the kLanes lanes of a row, at most kMaxF32; NaN stays NaN.
template <int kLanes>
__device__ __forceinline__ float RowMax(float max) {
#pragma unroll
  for (int mask = 1; mask < kLanes; mask *= 2) {
    max = arch::MaxNan(max, arch::ShuffleXor(max, mask));
  }
  return max > kMaxF32 ? kMaxF32 : max;
}

// max(amax, 1e-10); NaN stays NaN.
__device__ __forceinline__ float AtLeastMinAmax(float amax) {
  return amax < kMinAmax ? kMinAmax : amax;
}

// x / divisor as true division gives it, given that no finite |x| is over
// `largest`, and that it is over 2^60 if an x is infinite. The quotients share
// one reciprocal: with that correctly rounded, one correction by the exact
// remainder rounds each as division does (Markstein, IBM J. Res. Dev. 34,
// 1990). Quotients under 2^-60, whose codes are 0, may lose bits, not their
// sign. `quotient` may be `x`.
__device__ __forceinline__ void DivideAll(const float (&x)[16], float largest,
                                          float divisor,
                                          float (&quotient)[16]) {
  constexpr float kBound = 0x1p60f;
  // Beyond it, NaN included, a remainder could leave f32's range.
  if (largest <= kBound && divisor >= 1 / kBound && divisor <= kBound) {
    const float reciprocal = 1.0f / divisor;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      // The remainder is negated, so that a zero keeps its sign.
      const float q = x[i] * reciprocal;
      quotient[i] = arch::Fma(arch::Fma(q, divisor, -x[i]), -reciprocal, q);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) quotient[i] = x[i] / divisor;
}

// The integer nearest to `quotient`, ties to even, clamped to [low, high]; NaN
// gives 0. The low byte of its two's complement.
__device__ __forceinline__ u32 RoundClamped(float quotient, float low,
                                            float high) {
  if (quotient != quotient) return 0;
  const float rounded =
      arch::RoundEven(arch::Min(arch::Max(quotient, low), high));
  return static_cast<u32>(static_cast<i32>(rounded)) & 0xffu;
}

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_ROW_SCALE_CUH_
