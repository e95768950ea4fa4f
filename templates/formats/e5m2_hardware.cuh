// e5m2 encoded by conversion instructions, from sm_89 up. Exact, NaN included.
#ifndef KVFORGE_TEMPLATES_FORMATS_E5M2_HARDWARE_CUH_
#define KVFORGE_TEMPLATES_FORMATS_E5M2_HARDWARE_CUH_

#include "arch/select.cuh"

namespace kvforge::formats {

struct E5m2EncodeHardware {
  static __device__ __forceinline__ u32 Pair(float lo, float hi) {
    return arch::F32x2ToE5m2x2(lo, hi);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_E5M2_HARDWARE_CUH_
