// e2m1 by conversion instructions, from sm_100a up. Exact.
#ifndef KVFORGE_TEMPLATES_FORMATS_E2M1_HARDWARE_CUH_
#define KVFORGE_TEMPLATES_FORMATS_E2M1_HARDWARE_CUH_

#include "formats/e2m1.cuh"

namespace kvforge::formats {

// Codes 0 and 4, and 1 and 5, of eight to two f16 pairs.
__device__ __forceinline__ void E2m1ToF16Hardware4(u32 codes, u32 (&out)[2]) {
  const u32 first = (codes & 0x0fu) | (codes >> 12 & 0xf0u);
  const u32 second = (codes >> 4 & 0x0fu) | (codes >> 16 & 0xf0u);
  out[0] = arch::E2m1x2ToF16x2(static_cast<u8>(first));
  out[1] = arch::E2m1x2ToF16x2(static_cast<u8>(second));
}

struct E2m1EncodeHardware {
  static __device__ __forceinline__ u32 Pair(float lo, float hi) {
    return arch::F32x2ToE2m1x2(lo, hi);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_E2M1_HARDWARE_CUH_
