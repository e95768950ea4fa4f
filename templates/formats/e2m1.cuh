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

struct E2m1EncodePlaced {
  static __device__ __forceinline__ u32 Pair(float lo, float hi) {
    return E2m1EncodeOne(hi) * 16 + E2m1EncodeOne(lo);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_E2M1_CUH_
