// e2m1: sign, 2 exponent bits (bias 1), 1 mantissa bit; 0, .5, 1, 1.5, 2, 3, 4,
// 6 and their negatives. Two codes a byte, element 2i in the low nibble. There
// is no NaN code: a NaN encodes to +6, and formats mark it in the block scale.
#ifndef KVFORGE_TEMPLATES_FORMATS_E2M1_CUH_
#define KVFORGE_TEMPLATES_FORMATS_E2M1_CUH_

#include "arch/select.cuh"

namespace kvforge::formats {

// The codes in the low (`high` 0) or high nibbles of four bytes to two f16
// pairs, times 2^-14: the bits moved into the upper byte of an f16 keep the
// exponent field.
//   code  s ee m          f16  s 000ee m0 00000000   (bias 15 - 1 = 14)
// subnormals included. All four are moved within their bytes at once; the zeros
// come with the signs, masked once for both nibbles.
__device__ __forceinline__ void E2m1ToF16Placed4(u32 codes, u32 high,
                                                 u32 (&out)[2]) {
  const u32 signs = arch::BitSelect(0x88888888u, codes, 0);
  const u32 placed = high != 0
                         ? arch::BitSelect(0x0e0e0e0eu, codes >> 3, signs)
                         : arch::BitSelect(0x0e0e0e0eu, codes << 1, signs << 4);
  out[0] = arch::BytePermute(placed, 0, 0x1404);
  out[1] = arch::BytePermute(placed, 0, 0x3424);
}

// One f32 to its code: nearest, ties to even, saturating, NaN to +6.
//
// With e = 0, 1, 2 for |x| below 2, below 4 and from there on, the steps are
// 2^(e-1), and |x| / 2^(e-1) rounds to n = 0..4: the code is n + 2 e. Added to
// 2^(22+e), whose ulp is a step, |x| rounds to n in the low bits, beneath the
// exponent 149 + e. Six steps more make up for 2 * 149: n + 6 + 2 (149 + e) is
// the code modulo 16.
__device__ __forceinline__ u32 E2m1EncodeOne(float x) {
  const float clamped = arch::Min(x, 6.0f);  // of a NaN: 6
  const float magnitude = arch::Min(arch::Abs(clamped), 6.0f);
  const float power = arch::Max(
      arch::FromBits(arch::Bits(magnitude) & 0x7f800000u), 1.0f);  // 2^e
  const u32 sum = arch::Bits(arch::Fma(power, 0x1p22f + 3, magnitude));
  const u32 code = sum + (sum >> 22);
  return (code & 0x7u) | ((arch::Bits(clamped) >> 28) & ~0x7u);
}

// Whether x times the rounded reciprocal of `scale` rounds to the code of the
// true quotient x / scale, for any x of Source. Both are within 2^-23 of the
// exact quotient, so they differ only beside a tie: one of 1, 3, 5, 7 times a
// power of two. Such an x would be beside that multiple of the scale, all of
// whose last kZeroBits bits then are nearly 0 or nearly 1; 4 units cover the
// two roundings and the multiple's own.
template <class Source>
__device__ __forceinline__ bool E2m1TiesAreFar(float scale) {
  if constexpr (Source::kZeroBits == 0) {
    return false;
  } else {
    constexpr int kShift = 32 - Source::kZeroBits;
    u32 least = ~0u;
#pragma unroll
    for (int multiple = 1; multiple <= 7; multiple += 2) {
      const u32 bits = arch::Bits(scale * static_cast<float>(multiple));
      const u32 above = (bits + 4) << kShift;
      least = above < least ? above : least;
    }
    return least >= 8u << kShift;
  }
}

struct E2m1EncodePlaced {
  static __device__ __forceinline__ u32 Pair(float lo, float hi) {
    return E2m1EncodeOne(hi) * 16 + E2m1EncodeOne(lo);
  }

  // The codes of 16 products x * factor, below 7 and none beside a tie
  // (E2m1TiesAreFar). Times 2^-14 and cut toward zero, a product is an f16
  //   s 000ee m hrrrrrrrr
  // whose exponent, subnormals included, and first bit are the code's; h rounds
  // to nearest, since what is cut off decides no tie.
  static __device__ __forceinline__ void Products(const float (&x)[16],
                                                  float factor,
                                                  u32 (&codes)[2]) {
    const float placed = factor * 0x1p-14f;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      u32 pair[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        pair[j] = arch::PackF16TowardZero(x[8 * i + 2 * j] * placed,
                                          x[8 * i + 2 * j + 1] * placed) +
                  0x01000100u;
      }
      // The upper byte of each f16, s000eemh: of elements 0 2 1 3, 4 6 5 7.
      const u32 first = arch::BytePermute(pair[0], pair[1], 0x7351);
      const u32 second = arch::BytePermute(pair[2], pair[3], 0x7351);
      const u32 even = arch::BytePermute(first, second, 0x5410);
      const u32 odd = arch::BytePermute(first, second, 0x7632);
      codes[i] = arch::BitSelect(
          0x0f0f0f0fu, arch::BitSelect(0x07070707u, even >> 1, even >> 4),
          arch::BitSelect(0x70707070u, odd << 3, odd));
    }
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_E2M1_CUH_
