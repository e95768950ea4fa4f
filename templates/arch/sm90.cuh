// Arch functions of sm_90 and later: the order of grids in a stream.
#ifndef KVFORGE_TEMPLATES_ARCH_SM90_CUH_
#define KVFORGE_TEMPLATES_ARCH_SM90_CUH_

namespace kvforge::arch {

// Whether a grid may start before the one ahead of it in its stream has ended.
// A kernel that says so to its launcher (kvforge_overlaps_launches) calls
// WaitForPriorGrids in every thread before it touches global memory.
inline constexpr bool kGridsOverlap = true;

// Until every earlier grid has ended; what it wrote is seen then.
__device__ __forceinline__ void WaitForPriorGrids() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// The next grid of the stream may start once every block got here or left.
__device__ __forceinline__ void AllowNextGrid() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace kvforge::arch

#endif  // KVFORGE_TEMPLATES_ARCH_SM90_CUH_
