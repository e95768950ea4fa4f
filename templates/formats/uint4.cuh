// Unsigned 4-bit integers as codes, two a byte, element 2i in the low nibble.
#ifndef KVFORGE_TEMPLATES_FORMATS_UINT4_CUH_
#define KVFORGE_TEMPLATES_FORMATS_UINT4_CUH_

#include "formats/row_scale.cuh"

namespace kvforge::formats {

// Codes 0 and 4, and 1 and 5, of eight to two f16 pairs, exact: under 0x6400 a
// code is the f16 of 1024 more.
__device__ __forceinline__ void Uint4ToF16Offset4(u32 codes, u32 (&out)[2]) {
  constexpr u32 kHigh = 0x64006400u;
  constexpr u32 kOffset = 0xe400e400u;  // -1024 twice
  out[0] = arch::AddF16x2((codes & 0x000f000fu) | kHigh, kOffset);
  out[1] = arch::AddF16x2((codes >> 4 & 0x000f000fu) | kHigh, kOffset);
}

// Nearest, ties to even, clamped to 0 .. 15, NaN to 0.
struct Uint4Encode {
  static __device__ __forceinline__ u32 Pair(float lo, float hi) {
    return RoundClamped(lo, 0.0f, 15.0f) | (RoundClamped(hi, 0.0f, 15.0f) << 4);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_UINT4_CUH_
