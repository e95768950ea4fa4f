// Scalar functions that softcap and a user's score function call. Defined for
// every input, and alike on every target: where C++ or MLIR leaves a result
// open, the comment says which one is given.
#ifndef KVFORGE_TEMPLATES_FORMATS_SCORE_MATH_CUH_
#define KVFORGE_TEMPLATES_FORMATS_SCORE_MATH_CUH_

#include "arch/select.cuh"

namespace kvforge::formats {

// Near 0 a series, so that the error stays relative to x; elsewhere 1 - 2 /
// (e^2x + 1), which reaches +-1 at infinity.
__device__ __forceinline__ float Tanh(float x) {
  constexpr float kTwoLog2E = 2.885390081777927f;
  const float x2 = x * x;
  float series = arch::Fma(x2, 62.0f / 2835, -17.0f / 315);
  series = arch::Fma(series, x2, 2.0f / 15);
  series = arch::Fma(series, x2, -1.0f / 3);
  series = arch::Fma(series * x2, x, x);
  const float closed = 1.0f - 2.0f / (arch::Exp2(x * kTwoLog2E) + 1.0f);
  return arch::Abs(x) < 0.25f ? series : closed;
}

// Finite for every finite s.
__device__ __forceinline__ float Softcap(float s, float cap) {
  return cap * Tanh(s / cap);
}

// Relative error up to 1e-7 * (3 + |x|); below 2^-126 the result is 0.
__device__ __forceinline__ float Exp(float x) {
  return arch::Exp2(x * 1.4426950408889634f);
}

__device__ __forceinline__ float Log(float x) {
  return arch::Log2(x) * 0.6931471805599453f;
}

__device__ __forceinline__ float CopySign(float magnitude, float sign) {
  return arch::FromBits((arch::Bits(magnitude) & 0x7fffffffu) |
                        (arch::Bits(sign) & 0x80000000u));
}

// Towards zero, to the nearest i32 where there is none; NaN gives 0.
__device__ __forceinline__ i32 ToI32(float x) {
  if (x != x) return 0;
  if (x >= 0x1p31f) return 2147483647;
  if (x < -0x1p31f) return -2147483647 - 1;
  return static_cast<i32>(x);
}

// These wrap around.
__device__ __forceinline__ i32 AddI32(i32 a, i32 b) {
  return static_cast<i32>(static_cast<u32>(a) + static_cast<u32>(b));
}
__device__ __forceinline__ i32 SubI32(i32 a, i32 b) {
  return static_cast<i32>(static_cast<u32>(a) - static_cast<u32>(b));
}
__device__ __forceinline__ i32 MulI32(i32 a, i32 b) {
  return static_cast<i32>(static_cast<u32>(a) * static_cast<u32>(b));
}
__device__ __forceinline__ i32 AbsI32(i32 a) {
  return a < 0 ? SubI32(0, a) : a;
}

// Towards zero; by zero gives 0.
__device__ __forceinline__ i32 DivI32(i32 a, i32 b) {
  if (b == 0) return 0;
  return b == -1 ? SubI32(0, a) : a / b;
}
// The rest of that; by zero gives a.
__device__ __forceinline__ i32 RemI32(i32 a, i32 b) {
  return SubI32(a, MulI32(DivI32(a, b), b));
}

// By the low five bits of `count`.
__device__ __forceinline__ i32 ShiftLeftI32(i32 a, i32 count) {
  return static_cast<i32>(static_cast<u32>(a) << (count & 31));
}

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_SCORE_MATH_CUH_
