// e2m1 by conversion instructions, from sm_100a up. Exact.
#ifndef KVFORGE_TEMPLATES_FORMATS_E2M1_HARDWARE_CUH_
#define KVFORGE_TEMPLATES_FORMATS_E2M1_HARDWARE_CUH_

#include "formats/e2m1.cuh"

namespace kvforge::formats {

// The codes in the low (`high` 0) or high nibbles of four bytes to two f16
// pairs.
__device__ __forceinline__ void E2m1ToF16Hardware4(u32 codes, u32 high,
                                                   u32 (&out)[2]) {
  // Codes 0 and 1 in byte 0, 2 and 3 in byte 2.
  const u32 pairs =
      high != 0 ? (codes >> 4 & 0x000f000fu) | (codes >> 8 & 0x00f000f0u)
                : (codes & 0x000f000fu) | (codes >> 4 & 0x00f000f0u);
  out[0] = arch::E2m1x2ToF16x2(static_cast<u8>(pairs));
  out[1] = arch::E2m1x2ToF16x2(static_cast<u8>(pairs >> 16));
}

struct E2m1EncodeHardware {
  static __device__ __forceinline__ u32 Pair(float lo, float hi) {
    return arch::F32x2ToE2m1x2(lo, hi);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_E2M1_HARDWARE_CUH_
