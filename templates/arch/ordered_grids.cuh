// The functions of sm90.cuh elsewhere: a grid starts when the one ahead has
// ended, and tensor copies, which no text for such a GPU calls, are only
// declared.
#ifndef KVFORGE_TEMPLATES_ARCH_ORDERED_GRIDS_CUH_
#define KVFORGE_TEMPLATES_ARCH_ORDERED_GRIDS_CUH_

#include "kernels/tensor_map.h"

namespace kvforge::arch {

inline constexpr bool kGridsOverlap = false;

__device__ __forceinline__ void WaitForPriorGrids() {}
__device__ __forceinline__ void AllowNextGrid() {}

__device__ void PrefetchMap(const TensorMap& map);
__device__ void ExpectBytes(u32 barrier, u32 bytes);
__device__ void TensorCopy(u32 shared, const TensorMap& map, const int (&at)[5],
                           u32 barrier);

}  // namespace kvforge::arch

#endif  // KVFORGE_TEMPLATES_ARCH_ORDERED_GRIDS_CUH_
