// Signed 8-bit integers as codes.
#ifndef KVFORGE_TEMPLATES_FORMATS_INT8_CUH_
#define KVFORGE_TEMPLATES_FORMATS_INT8_CUH_

#include "formats/row_scale.cuh"

namespace kvforge::formats {

// Four codes to two f16 pairs, exact. With the sign bit flipped a code is its
// value + 128; under the byte 0x64 it is the f16 of 1024 more than that.
__device__ __forceinline__ void Int8ToF16Offset4(u32 codes, u32 (&out)[2]) {
  const u32 unsigned_codes = codes ^ 0x80808080u;
  constexpr u32 kHigh = 0x64646464u;
  constexpr u32 kOffset = 0xe480e480u;  // -1152 twice
  out[0] =
      arch::AddF16x2(arch::BytePermute(unsigned_codes, kHigh, 0x4140), kOffset);
  out[1] =
      arch::AddF16x2(arch::BytePermute(unsigned_codes, kHigh, 0x4342), kOffset);
}

// Nearest, ties to even, clamped to +-127, NaN to 0.
struct Int8Encode {
  static __device__ __forceinline__ u32 Pair(float lo, float hi) {
    return RoundClamped(lo, -127.0f, 127.0f) |
           (RoundClamped(hi, -127.0f, 127.0f) << 8);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_INT8_CUH_
