// e4m3fn: sign, 4 exponent bits (bias 7), 3 mantissa bits; no infinity,
// 0x7F and 0xFF are NaN, the largest value is 448 (0x7E).
//
// Decode is exact in f16, times 2^-8 where it is done by bit placement:
//   code  s eeee mmm          f16  s 0eeee mmm0000000   (bias 15 - 7 = 8)
// subnormals included. A NaN code decodes to NaN on every path.
#ifndef KVFORGE_TEMPLATES_FORMATS_E4M3_CUH_
#define KVFORGE_TEMPLATES_FORMATS_E4M3_CUH_

#include "arch/select.cuh"

namespace kvforge::formats {

// Codes in the upper bytes of the two halves of `placed` to f16, times 2^-8.
__device__ __forceinline__ u32 E4m3PlacedPair(u32 placed) {
  const u32 magnitude = placed & 0x7f007f00u;
  // A magnitude of 0x7f carries into the sign's place: that half gets an
  // exponent of all ones.
  const u32 nan = (magnitude + 0x01000100u) & 0x80008000u;
  return (placed & 0x80008000u) | (magnitude >> 1) | (nan - (nan >> 5));
}

// Four codes to two f16 pairs, times 2^-8.
__device__ __forceinline__ void E4m3ToF16Placed4(u32 codes, u32 (&out)[2]) {
  out[0] = E4m3PlacedPair(arch::BytePermute(codes, 0, 0x1404));
  out[1] = E4m3PlacedPair(arch::BytePermute(codes, 0, 0x3424));
}

// Two block scale codes to one f16 pair.
__device__ __forceinline__ u32 E4m3ScalePairPlaced(u32 first, u32 second) {
  constexpr u32 kRepay = 0x5c005c00u;  // 2^8 twice
  return arch::MulF16x2(E4m3PlacedPair((first << 8) | (second << 24)), kRepay);
}

// One code to f32; used where a stored scale is needed again.
__device__ __forceinline__ float E4m3ToF32(u32 code) {
  const u32 half = E4m3PlacedPair(code << 8);
  return arch::F16ToF32(static_cast<u16>(half)) * 0x1p8f;
}

// One f32 to its code: nearest even in one step, saturating, NaN to 0x7F.
__device__ __forceinline__ u32 E4m3EncodeOne(float x) {
  const u32 bits = arch::Bits(x);
  u32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7f;
  const u32 sign = (bits >> 24) & 0x80u;
  constexpr u32 kMax = 0x43e00000u;  // 448
  magnitude = magnitude < kMax ? magnitude : kMax;
  constexpr u32 kMinNormal = 0x3c800000u;  // 2^-6
  if (magnitude < kMinNormal) {
    // One ulp of 2^14 is 2^-9, the step of the subnormals: the sum rounds.
    const float sum = arch::FromBits(magnitude) + 0x1p14f;
    return sign | (arch::Bits(sum) - 0x46800000u);
  }
  // Keep 3 of 23 mantissa bits, then move the exponent's bias from 127 to 7.
  const u32 rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return sign | ((rounded >> 20) - (120u << 3));
}

struct E4m3EncodePlaced {
  static __device__ __forceinline__ u32 Pair(float lo, float hi) {
    return E4m3EncodeOne(lo) | (E4m3EncodeOne(hi) << 8);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_E4M3_CUH_
