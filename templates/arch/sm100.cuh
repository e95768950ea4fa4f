// Arch functions of sm_100 and later: conversions of e2m1. They need an exact
// target, such as sm_100a.
#ifndef KVFORGE_TEMPLATES_ARCH_SM100_CUH_
#define KVFORGE_TEMPLATES_ARCH_SM100_CUH_

#include "arch/sm89.cuh"

namespace kvforge::arch {

// Two codes (the low nibble first) to two f16, exact.
__device__ __forceinline__ u32 E2m1x2ToF16x2(u8 codes) {
  u32 d;
  asm("{\n"
      ".reg .b8 low, high;\n"
      "mov.b16 {low, high}, %1;\n"
      "cvt.rn.f16x2.e2m1x2 %0, low;\n"
      "}"
      : "=r"(d)
      : "h"(static_cast<u16>(codes)));
  return d;
}
// To nearest even, beyond +-6 to +-6, NaN to 7 (+6).
__device__ __forceinline__ u8 F32x2ToE2m1x2(float lo, float hi) {
  u16 d;
  asm("{\n"
      ".reg .b8 low, high;\n"
      "mov.b16 {low, high}, 0;\n"
      "cvt.rn.satfinite.e2m1x2.f32 low, %1, %2;\n"
      "mov.b16 %0, {low, high};\n"
      "}"
      : "=h"(d)
      : "f"(hi), "f"(lo));
  return static_cast<u8>(d);
}

}  // namespace kvforge::arch

#endif  // KVFORGE_TEMPLATES_ARCH_SM100_CUH_
