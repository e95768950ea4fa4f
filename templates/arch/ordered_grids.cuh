// The functions of sm90.cuh where a grid starts when the one ahead has ended.
#ifndef KVFORGE_TEMPLATES_ARCH_ORDERED_GRIDS_CUH_
#define KVFORGE_TEMPLATES_ARCH_ORDERED_GRIDS_CUH_

namespace kvforge::arch {

inline constexpr bool kGridsOverlap = false;

__device__ __forceinline__ void WaitForPriorGrids() {}
__device__ __forceinline__ void AllowNextGrid() {}

}  // namespace kvforge::arch

#endif  // KVFORGE_TEMPLATES_ARCH_ORDERED_GRIDS_CUH_
