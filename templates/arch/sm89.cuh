// Arch functions of sm_89 and later: conversions of e4m3 and e5m2.
#ifndef KVFORGE_TEMPLATES_ARCH_SM89_CUH_
#define KVFORGE_TEMPLATES_ARCH_SM89_CUH_

#include "arch/sm80.cuh"

namespace kvforge::arch {

// Two codes (the low byte first) to two f16, exact. A NaN code gives 0x7fff.
__device__ __forceinline__ u32 E4m3x2ToF16x2(u16 codes) {
  u32 d;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(d) : "h"(codes));
  return d;
}
// To nearest even, beyond +-448 to +-448, NaN to 0x7f.
__device__ __forceinline__ u16 F32x2ToE4m3x2(float lo, float hi) {
  u16 d;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(d) : "f"(hi), "f"(lo));
  return d;
}

// To nearest even, beyond +-57344 to +-57344, NaN to 0x7f.
__device__ __forceinline__ u16 F32x2ToE5m2x2(float lo, float hi) {
  u16 d;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(d) : "f"(hi), "f"(lo));
  return d;
}

}  // namespace kvforge::arch

#endif  // KVFORGE_TEMPLATES_ARCH_SM89_CUH_
