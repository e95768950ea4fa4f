// How shared memory holds an operand of a warpgroup's matrix product: the
// descriptor of PTX's "asynchronous warpgroup level matrix shared memory
// layout", swizzled by 128 bytes: bits 4 to 6 of an address are combined with
// bits 7 to 9. Elements have 16 bits, or 8 and are by depth.
//
//   by depth    a row of the operand is 64 neighbours along the sum, of 8 bits
//               128, in 128 bytes; eight rows follow each other, the next eight
//               `stride_bytes` on. A product's 16, or 32, further along the
//               sum: the address + 32
//   by row      a line is 64 neighbouring rows of the operand at one place of
//               the sum; eight places follow each other, the next eight
//               `stride_bytes` on, the next 64 rows `leading_bytes` on
//
// Both blocks of 1024 bytes are aligned to 1024.
#ifndef KVFORGE_TEMPLATES_ARCH_WGMMA_MATRIX_CUH_
#define KVFORGE_TEMPLATES_ARCH_WGMMA_MATRIX_CUH_

#include "arch/types.cuh"

namespace kvforge::arch {

// All in bytes, multiples of 16 below 2^18.
__device__ __forceinline__ u64 SharedMatrix(u32 address, u32 leading_bytes,
                                            u32 stride_bytes) {
  constexpr u64 kSwizzle128 = 1;
  return (address & 0x3ffff) >> 4 | static_cast<u64>(leading_bytes >> 4) << 16 |
         static_cast<u64>(stride_bytes >> 4) << 32 | kSwizzle128 << 62;
}

// The matrix `bytes` behind it, a multiple of 16.
__device__ __forceinline__ u64 Behind(u64 matrix, int bytes) {
  return matrix + static_cast<u64>(bytes / 16);
}

}  // namespace kvforge::arch

#endif  // KVFORGE_TEMPLATES_ARCH_WGMMA_MATRIX_CUH_
