// ue8m0: a power of two, 2^(code - 127); 0xFF is NaN. Code 0 is 2^-127, which
// is subnormal in f32.
#ifndef KVFORGE_TEMPLATES_FORMATS_UE8M0_CUH_
#define KVFORGE_TEMPLATES_FORMATS_UE8M0_CUH_

#include "arch/select.cuh"

namespace kvforge::formats {

// One code to f32, exact.
__device__ __forceinline__ float Ue8m0ToF32(u32 code) {
  if (code == 0) return arch::FromBits(0x00400000u);
  return arch::FromBits(code == 0xffu ? 0x7fc00000u : code << 23);
}

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_UE8M0_CUH_
