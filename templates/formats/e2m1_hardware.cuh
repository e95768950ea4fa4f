// e2m1 by conversion instructions, from sm_100a up. Exact.
#ifndef KVFORGE_TEMPLATES_FORMATS_E2M1_HARDWARE_CUH_
#define KVFORGE_TEMPLATES_FORMATS_E2M1_HARDWARE_CUH_

#include "formats/e2m1.cuh"

namespace kvforge::formats {

__device__ __forceinline__ void E2m1ToF16Hardware4(u32 codes, u32 (&out)[2]) {
  out[0] = arch::E2m1x2ToF16x2(static_cast<u8>(codes));
  out[1] = arch::E2m1x2ToF16x2(static_cast<u8>(codes >> 8));
}

struct E2m1EncodeHardware {
  static __device__ __forceinline__ u32 Pair(float lo, float hi) {
    return arch::F32x2ToE2m1x2(lo, hi);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_E2M1_HARDWARE_CUH_
