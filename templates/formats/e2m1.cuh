// e2m1: sign, 2 exponent bits (bias 1), 1 mantissa bit; 0, .5, 1, 1.5, 2, 3, 4,
// 6 and their negatives. Two codes a byte, element 2i in the low nibble. There
// is no NaN code: a NaN encodes to +6, and formats mark it in the block scale.
#ifndef KVFORGE_TEMPLATES_FORMATS_E2M1_CUH_
#define KVFORGE_TEMPLATES_FORMATS_E2M1_CUH_

#include "arch/select.cuh"

namespace kvforge::formats {

// Four codes in the low 16 bits to two f16 pairs, exact. The upper bytes of the
// eight magnitudes in f16 are a table of eight bytes; their lower bytes are 0.
__device__ __forceinline__ void E2m1ToF16Table4(u32 codes, u32 (&out)[2]) {
  const u32 high = arch::BytePermute(0x3e3c3800u, 0x46444240u, codes & 0x7777u);
  out[0] = arch::BytePermute(high, 0, 0x1404) | ((codes << 12) & 0x8000u) |
           ((codes << 24) & 0x80000000u);
  out[1] = arch::BytePermute(high, 0, 0x3424) | ((codes << 4) & 0x8000u) |
           ((codes << 16) & 0x80000000u);
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
