// 4-bit codes as Decode4 takes them.
#ifndef KVFORGE_TEMPLATES_OPS_SPREAD_CODES_CUH_
#define KVFORGE_TEMPLATES_OPS_SPREAD_CODES_CUH_

#include "arch/select.cuh"

namespace kvforge::ops {

// Four codes in 16 bits, 0 and 1 in the lower and 2 and 3 in the upper half: as
// Decode4 pairs codes, 0 with 2 and 1 with 3.
__device__ __forceinline__ u32 SpreadCodes(u32 codes) {
  return (codes & 0xffu) | (codes << 8 & 0xff0000u);
}

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_SPREAD_CODES_CUH_
