// ue8m0: a power of two, 2^(code - 127); 0xFF is NaN. Code 0 is 2^-127,
// subnormal in f32.
#ifndef KVFORGE_TEMPLATES_FORMATS_UE8M0_CUH_
#define KVFORGE_TEMPLATES_FORMATS_UE8M0_CUH_

#include "arch/select.cuh"

namespace kvforge::formats {

__device__ __forceinline__ float Ue8m0ToF32(u32 code) {
  u32 bits = code << 23;
  if (code == 0) bits = 0x00400000u;
  if (code == 0xffu) bits = 0x7fffffffu;
  return arch::FromBits(bits);
}

// The least power of two that is not below |x|, at most 2^127; by exponent
// bits.
__device__ __forceinline__ u32 Ue8m0EncodeCeilOne(float x) {
  const u32 magnitude = arch::Bits(x) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0xff;
  if (magnitude <= 0x00400000u) return 0;  // 2^-127
  const u32 code = (magnitude + 0x7fffffu) >> 23;
  return code < 0xfeu ? code : 0xfeu;
}

struct Ue8m0EncodeCeil {
  static __device__ __forceinline__ u32 Pair(float lo, float hi) {
    return Ue8m0EncodeCeilOne(lo) | (Ue8m0EncodeCeilOne(hi) << 8);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_UE8M0_CUH_
