// Unsigned 4-bit integers as codes, two a byte, element 2i in the low nibble.
#ifndef KVFORGE_TEMPLATES_FORMATS_UINT4_CUH_
#define KVFORGE_TEMPLATES_FORMATS_UINT4_CUH_

#include "formats/row_scale.cuh"

namespace kvforge::formats {

// The codes in the low (`high` 0) or high nibbles of four bytes to two f16
// pairs, exact: under the byte 0x64 a code is the f16 of 1024 more.
__device__ __forceinline__ void Uint4ToF16Offset4(u32 codes, u32 high,
                                                  u32 (&out)[2]) {
  const u32 bytes = (high != 0 ? codes >> 4 : codes) & 0x0f0f0f0fu;
  // First of the permute's operands, where no compiler takes it for an
  // immediate and then loads the selector for every permute.
  constexpr u32 kHigh = 0x64646464u;
  constexpr u32 kOffset = 0xe400e400u;  // -1024 twice
  out[0] = arch::AddF16x2(arch::BytePermute(kHigh, bytes, 0x0504), kOffset);
  out[1] = arch::AddF16x2(arch::BytePermute(kHigh, bytes, 0x0706), kOffset);
}

// Nearest, ties to even, clamped to 0 .. 15, NaN to 0.
struct Uint4Encode {
  static __device__ __forceinline__ u32 Pair(float lo, float hi) {
    return RoundClamped(lo, 0.0f, 15.0f) | (RoundClamped(hi, 0.0f, 15.0f) << 4);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_UINT4_CUH_
