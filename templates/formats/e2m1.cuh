// e2m1: sign, 2 exponent bits (bias 1), 1 mantissa bit; 0, .5, 1, 1.5, 2, 3, 4,
// 6 and their negatives. Two codes a byte, element 2i in the low nibble. There
// is no NaN code: a NaN encodes to +6, and formats mark it in the block scale.
#ifndef KVFORGE_TEMPLATES_FORMATS_E2M1_CUH_
#define KVFORGE_TEMPLATES_FORMATS_E2M1_CUH_

#include "arch/select.cuh"

namespace kvforge::formats {

// Codes 0 and 4, and 1 and 5, of eight to two f16 pairs, times 2^-14: the bits
// moved into an f16 keep the exponent field.
//   code  s ee m          f16  s 000ee m000000000   (bias 15 - 1 = 14)
// subnormals included.
__device__ __forceinline__ void E2m1ToF16Placed4(u32 codes, u32 (&out)[2]) {
  out[0] = ((codes << 12) & 0x80008000u) | ((codes << 9) & 0x0e000e00u);
  out[1] = ((codes << 8) & 0x80008000u) | ((codes << 5) & 0x0e000e00u);
}

// One f32 to its code: nearest, ties to even, saturating, NaN to +6.
__device__ __forceinline__ u32 E2m1EncodeOne(float x) {
  const u32 bits = arch::Bits(x);
  u32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7;
  const u32 sign = (bits >> 28) & 0x8u;
  constexpr u32 kMax = 0x40c00000u;  // 6
  magnitude = magnitude < kMax ? magnitude : kMax;
  constexpr u32 kMinNormal = 0x3f800000u;  // 1
  if (magnitude < kMinNormal) {
    // One ulp of 2^22 is 0.5, the step below 1: the sum rounds.
    const float sum = arch::FromBits(magnitude) + 0x1p22f;
    return sign | (arch::Bits(sum) - 0x4a800000u);
  }
  // Keep 1 of 23 mantissa bits, then move the exponent's bias from 127 to 1.
  const u32 rounded = magnitude + 0x1fffffu + ((magnitude >> 22) & 1u);
  return sign | ((rounded >> 22) - (126u << 1));
}

struct E2m1EncodePlaced {
  static __device__ __forceinline__ u32 Pair(float lo, float hi) {
    return E2m1EncodeOne(lo) | (E2m1EncodeOne(hi) << 4);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_E2M1_CUH_
