// e4m3fn by conversion instructions, from sm_89 up. Exact, NaN included.
#ifndef KVFORGE_TEMPLATES_FORMATS_E4M3_HARDWARE_CUH_
#define KVFORGE_TEMPLATES_FORMATS_E4M3_HARDWARE_CUH_

#include "formats/e4m3.cuh"

namespace kvforge::formats {

__device__ __forceinline__ void E4m3ToF16Hardware4(u32 codes, u32 (&out)[2]) {
  out[0] = arch::E4m3x2ToF16x2(static_cast<u16>(codes));
  out[1] = arch::E4m3x2ToF16x2(arch::UpperHalf(codes));
}

__device__ __forceinline__ u32 E4m3ScalePairHardware(u32 first, u32 second) {
  return arch::E4m3x2ToF16x2(static_cast<u16>(first | (second << 8)));
}

struct E4m3EncodeHardware {
  static __device__ __forceinline__ u32 Pair(float lo, float hi) {
    return arch::F32x2ToE4m3x2(lo, hi);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_E4M3_HARDWARE_CUH_
