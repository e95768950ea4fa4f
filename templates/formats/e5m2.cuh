// e5m2: sign, 5 exponent bits (bias 15), 2 mantissa bits: the upper byte of an
// f16, infinities (0x7C) and NaNs included. The largest value is 57344 (0x7B).
#ifndef KVFORGE_TEMPLATES_FORMATS_E5M2_CUH_
#define KVFORGE_TEMPLATES_FORMATS_E5M2_CUH_

#include "arch/select.cuh"

namespace kvforge::formats {

// Four codes to two f16 pairs, exact.
__device__ __forceinline__ void E5m2ToF16Placed4(u32 codes, u32 (&out)[2]) {
  out[0] = arch::BytePermute(codes, 0, 0x1404);
  out[1] = arch::BytePermute(codes, 0, 0x3424);
}

// One f32 to its code: nearest even in one step, saturating, NaN to 0x7F.
__device__ __forceinline__ u32 E5m2EncodeOne(float x) {
  const u32 bits = arch::Bits(x);
  u32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7f;
  const u32 sign = (bits >> 24) & 0x80u;
  constexpr u32 kMax = 0x47600000u;  // 57344
  magnitude = magnitude < kMax ? magnitude : kMax;
  constexpr u32 kMinNormal = 0x38800000u;  // 2^-14
  if (magnitude < kMinNormal) {
    // One ulp of 2^7 is 2^-16, the step of the subnormals: the sum rounds.
    const float sum = arch::FromBits(magnitude) + 0x1p7f;
    return sign | (arch::Bits(sum) - 0x43000000u);
  }
  // Keep 2 of 23 mantissa bits, then move the exponent's bias from 127 to 15.
  const u32 rounded = magnitude + 0xfffffu + ((magnitude >> 21) & 1u);
  return sign | ((rounded >> 21) - (112u << 2));
}

struct E5m2EncodePlaced {
  static __device__ __forceinline__ u32 Pair(float lo, float hi) {
    return E5m2EncodeOne(lo) | (E5m2EncodeOne(hi) << 8);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_E5M2_CUH_
