// Arch functions of sm_90 and later: the order of grids in a stream, and tensor
// copies.
#ifndef KVFORGE_TEMPLATES_ARCH_SM90_CUH_
#define KVFORGE_TEMPLATES_ARCH_SM90_CUH_

#include "kernels/tensor_map.h"

// Where a tensor copy lands: this block's memory. sm_90 knows only addresses of
// a cluster. On sm_120 those cost a comparison and a call where none is needed.
#if __CUDA_ARCH__ >= 1000
#define KVFORGE_TENSOR_COPY_TO "shared::cta"
#else
#define KVFORGE_TENSOR_COPY_TO "shared::cluster"
#endif

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

// A phase of the barrier ends only when so many bytes of tensor copies have
// come besides its arrivals. Called before an arrival of the same thread.
__device__ __forceinline__ void ExpectBytes(u32 barrier, u32 bytes) {
  asm volatile(
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}
// Fetches a map ahead of its first use.
__device__ __forceinline__ void PrefetchMap(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Starts the copy of the map's box at those coordinates to shared memory,
// 128-byte aligned; its bytes count at the barrier. They are not needed by
// other blocks: their lines may leave L2 first. `map` is a part of the kernel's
// argument.
__device__ __forceinline__ void TensorCopy(u32 shared, const TensorMap& map,
                                           const int (&at)[5], u32 barrier) {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.bulk.tensor.5d." KVFORGE_TENSOR_COPY_TO
               ".global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(shared),
               "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
               "r"(at[4]), "r"(barrier), "l"(policy)
               : "memory");
}

// Starts a copy of `bytes` neighbouring bytes to shared memory, all multiples
// of 16; they count at the barrier as a tensor copy's do.
__device__ __forceinline__ void BulkCopy(u32 shared, const void* global,
                                         u32 bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk." KVFORGE_TENSOR_COPY_TO
      ".global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}
// What this thread has written to shared memory is seen by products of a
// warpgroup and by copies out of it, once a barrier has ordered those behind.
__device__ __forceinline__ void AsyncFence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace kvforge::arch

#endif  // KVFORGE_TEMPLATES_ARCH_SM90_CUH_
