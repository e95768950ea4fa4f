// Small kernels whose facts are known by hand.
#ifndef KVFORGE_TESTS_RUNTIME_NVRTC_KERNELS_H_
#define KVFORGE_TESTS_RUNTIME_NVRTC_KERNELS_H_

namespace kvforge {

// The argument struct of kVectorAdd, as host code sees it.
struct VectorAddArgs {
  const float* a;
  const float* b;
  float* sum;
  long long count;
};
inline constexpr int kVectorAddBlockThreads = 128;
inline constexpr int kVectorAddSharedBytes = 128 * 4;

// sum[i] = a[i] + b[i], each block's values through dynamic shared memory.
inline constexpr char kVectorAdd[] = R"cuda(
#include "ops/vector_add_args.h"

extern "C" __constant__ int kvforge_shared_bytes = kBlockThreads * 4;
extern "C" __constant__ int kvforge_block_threads = kBlockThreads;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ VectorAddArgs args) {
  extern __shared__ float values[];
  long long i = (long long)blockIdx.x * kBlockThreads + threadIdx.x;
  values[kBlockThreads - 1 - threadIdx.x] =
      i < args.count ? args.a[i] + args.b[i] : 0.0f;
  __syncthreads();
  if (i < args.count) args.sum[i] = values[kBlockThreads - 1 - threadIdx.x];
}
)cuda";
// *value += 1, on one thread, after a while: a launch that starts before the
// one ahead has ended reads too early unless it waits.
inline constexpr char kCountUp[] = R"cuda(
extern "C" __constant__ int kvforge_block_threads = 1;
extern "C" __constant__ int kvforge_overlaps_launches = 1;

struct CountUpArgs { int* value; };

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ CountUpArgs args) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const int seen = *(volatile int*)args.value;
  for (int i = 0; i < 20; ++i) __nanosleep(100);
  *(volatile int*)args.value = seen + 1;
}
)cuda";

inline constexpr char kVectorAddArgs[] = R"cuda(
#include "ops/block.h"
struct VectorAddArgs {
  const float* a;
  const float* b;
  float* sum;
  long long count;
};
)cuda";
inline constexpr char kBlock[] = R"cuda(
constexpr int kBlockThreads = 128;
)cuda";

}  // namespace kvforge

#endif  // KVFORGE_TESTS_RUNTIME_NVRTC_KERNELS_H_
