// 4-bit codes as Decode4 takes them.
#ifndef KVFORGE_TEMPLATES_OPS_SPREAD_CODES_CUH_
#define KVFORGE_TEMPLATES_OPS_SPREAD_CODES_CUH_

#include "arch/select.cuh"

namespace kvforge::ops {

// The four codes of 16 bits to the low nibbles of four bytes, in their order.
__device__ __forceinline__ u32 SpreadCodes(u32 codes) {
  return arch::BytePermute(codes, codes >> 4, 0x5140);
}

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_SPREAD_CODES_CUH_
