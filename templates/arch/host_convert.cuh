// Conversions of the host twin: integer arithmetic, bit for bit what the
// instructions give, NaN included. For arch/host.cuh.
#ifndef KVFORGE_TEMPLATES_ARCH_HOST_CONVERT_CUH_
#define KVFORGE_TEMPLATES_ARCH_HOST_CONVERT_CUH_

#include "arch/types.cuh"

namespace kvforge::arch {

inline constexpr u32 kNanBits = 0x7fffffff;  // what f32 instructions give

__device__ __forceinline__ u32 Bits(float x) {
  return __builtin_bit_cast(u32, x);
}
__device__ __forceinline__ float FromBits(u32 x) {
  return __builtin_bit_cast(float, x);
}

__device__ __forceinline__ u32 BytePermute(u32 a, u32 b, u32 selector) {
  const u64 bytes = static_cast<u64>(b) << 32 | a;
  u32 d = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 nibble = selector >> (4 * i);
    const u32 byte = static_cast<u32>(bytes >> (8 * (nibble & 7))) & 0xff;
    d |= ((nibble & 8) ? (byte & 0x80) / 0x80 * 0xff : byte) << (8 * i);
  }
  return d;
}
__device__ __forceinline__ u32 BitSelect(u32 mask, u32 a, u32 b) {
  return (a & mask) | (b & ~mask);
}
__device__ __forceinline__ u16 UpperHalf(u32 x) {
  return static_cast<u16>(x >> 16);
}
__device__ __forceinline__ u32 BothHalves(u16 x) { return x * 0x10001u; }

namespace internal {

// A float of `magnitude` bits without sign, rounded to nearest even, to a
// narrow float of kMantissa bits and kBias, without clamping: the result may
// carry into exponents that the narrow type lacks.
template <int kMantissa, int kBias>
__device__ __forceinline__ u32 RoundNarrow(u32 magnitude) {
  constexpr u32 kMinNormal = static_cast<u32>(127 + 1 - kBias) << 23;
  // Its unit in the last place is the narrow type's smallest subnormal.
  constexpr u32 kAligner = static_cast<u32>(127 + 1 - kBias - kMantissa + 23)
                           << 23;
  if (magnitude < kMinNormal) {
    return Bits(FromBits(magnitude) + FromBits(kAligner)) - kAligner;
  }
  constexpr int kDropped = 23 - kMantissa;
  const u32 odd = magnitude >> kDropped & 1;
  const u32 rounded = magnitude + (1u << (kDropped - 1)) - 1 + odd;
  return (rounded - (static_cast<u32>(127 - kBias) << 23)) >> kDropped;
}

__device__ __forceinline__ u32 F32ToF16(float x) {
  const u32 sign = Bits(x) >> 16 & 0x8000;
  const u32 magnitude = Bits(x) & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= 0x47800000) return sign | 0x7c00;  // 65536 and beyond
  return sign | RoundNarrow<10, 15>(magnitude);
}

__device__ __forceinline__ u32 F32ToBf16(float x) {
  const u32 bits = Bits(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

__device__ __forceinline__ u32 F32ToE4m3(float x) {
  const u32 sign = Bits(x) >> 24 & 0x80;
  const u32 magnitude = Bits(x) & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7f;
  if (magnitude >= 0x43e00000) return sign | 0x7e;  // 448 and beyond
  return sign | RoundNarrow<3, 7>(magnitude);
}

__device__ __forceinline__ u32 F32ToE5m2(float x) {
  const u32 sign = Bits(x) >> 24 & 0x80;
  const u32 magnitude = Bits(x) & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7f;
  if (magnitude >= 0x47600000) return sign | 0x7b;  // 57344 and beyond
  return sign | RoundNarrow<2, 15>(magnitude);
}

__device__ __forceinline__ u32 F32ToE2m1(float x) {
  const u32 sign = Bits(x) >> 28 & 0x8;
  const u32 magnitude = Bits(x) & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7;
  if (magnitude >= 0x40c00000) return sign | 0x7;  // 6 and beyond
  return sign | RoundNarrow<1, 1>(magnitude);
}

}  // namespace internal

__device__ __forceinline__ u32 PackF16(float lo, float hi) {
  return internal::F32ToF16(lo) | internal::F32ToF16(hi) << 16;
}
__device__ __forceinline__ u32 PackBf16(float lo, float hi) {
  return internal::F32ToBf16(lo) | internal::F32ToBf16(hi) << 16;
}
__device__ __forceinline__ float F16ToF32(u16 x) {
  const u32 sign = static_cast<u32>(x & 0x8000) << 16;
  const u32 magnitude = static_cast<u32>(x & 0x7fff) << 13;
  constexpr u32 kInf = 0x7c00u << 13;
  constexpr u32 kRebias = (127u - 15) << 23;
  if (magnitude > kInf) return FromBits(kNanBits);
  if (magnitude == kInf) return FromBits(sign | 0x7f800000);
  if (magnitude < (0x0400u << 13)) {  // subnormal: the hidden bit comes off
    constexpr u32 kHidden = kRebias + (1u << 23);
    return FromBits(sign |
                    Bits(FromBits(magnitude + kHidden) - FromBits(kHidden)));
  }
  return FromBits(sign | (magnitude + kRebias));
}
__device__ __forceinline__ float Bf16ToF32(u16 x) {
  return FromBits(static_cast<u32>(x) << 16);
}
// The product of two f16 is exact in f32: one rounding.
__device__ __forceinline__ u32 MulF16x2(u32 x, u32 y) {
  return PackF16(F16ToF32(static_cast<u16>(x)) * F16ToF32(static_cast<u16>(y)),
                 F16ToF32(static_cast<u16>(x >> 16)) *
                     F16ToF32(static_cast<u16>(y >> 16)));
}
// Rounding the sum of two f16 to f32 first is harmless: 24 bits are as many as
// 2 * 11 + 2.
__device__ __forceinline__ u32 AddF16x2(u32 x, u32 y) {
  return PackF16(F16ToF32(static_cast<u16>(x)) + F16ToF32(static_cast<u16>(y)),
                 F16ToF32(static_cast<u16>(x >> 16)) +
                     F16ToF32(static_cast<u16>(y >> 16)));
}

namespace internal {

__device__ __forceinline__ u32 E4m3ToF16(u32 code) {
  const u32 magnitude = code & 0x7f;
  if (magnitude == 0x7f) return 0x7fff;
  // The seven bits placed in an f16 are the value times 2^-8.
  const float value = F16ToF32(static_cast<u16>(magnitude << 7)) * 0x1p8f;
  return (code & 0x80) << 8 | F32ToF16(value);
}

__device__ __forceinline__ u32 E2m1ToF16(u32 code) {
  // Magnitudes 0, .5, 1, 1.5, 2, 3, 4, 6: the high byte of the f16.
  constexpr u64 kHighBytes = 0x46'44'42'40'3e'3c'38'00;
  const u32 high = static_cast<u32>(kHighBytes >> (8 * (code & 7))) & 0xff;
  return (code & 8) << 12 | high << 8;
}

}  // namespace internal

__device__ __forceinline__ u32 E4m3x2ToF16x2(u16 codes) {
  return internal::E4m3ToF16(codes & 0xff) | internal::E4m3ToF16(codes >> 8)
                                                 << 16;
}
__device__ __forceinline__ u16 F32x2ToE4m3x2(float lo, float hi) {
  return static_cast<u16>(internal::F32ToE4m3(lo) | internal::F32ToE4m3(hi)
                                                        << 8);
}
__device__ __forceinline__ u16 F32x2ToE5m2x2(float lo, float hi) {
  return static_cast<u16>(internal::F32ToE5m2(lo) | internal::F32ToE5m2(hi)
                                                        << 8);
}
__device__ __forceinline__ u32 E2m1x2ToF16x2(u8 codes) {
  return internal::E2m1ToF16(codes & 0xf) | internal::E2m1ToF16(codes >> 4)
                                                << 16;
}
__device__ __forceinline__ u8 F32x2ToE2m1x2(float lo, float hi) {
  return static_cast<u8>(internal::F32ToE2m1(lo) | internal::F32ToE2m1(hi)
                                                       << 4);
}

}  // namespace kvforge::arch

#endif  // KVFORGE_TEMPLATES_ARCH_HOST_CONVERT_CUH_
