// Calls MicroItem, which the including file defines, for each of n items.
#ifndef KVFORGE_TESTS_ARCH_MICRO_EACH_CUH_
#define KVFORGE_TESTS_ARCH_MICRO_EACH_CUH_

#include "micro/args.cuh"

namespace kvforge {

constexpr int kMicroThreads = 128;
__device__ void MicroItem(const MicroArgs& args, int i);

}  // namespace kvforge

extern "C" __constant__ int kvforge_block_threads = kvforge::kMicroThreads;
extern "C" __constant__ int kvforge_shared_bytes = 0;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  const int first = static_cast<int>(arch::BlockIndex()) * kMicroThreads +
                    arch::ThreadIndex();
  const int step = static_cast<int>(arch::BlockCount()) * kMicroThreads;
  for (int i = first; i < args.n; i += step) MicroItem(args, i);
}

#endif  // KVFORGE_TESTS_ARCH_MICRO_EACH_CUH_
