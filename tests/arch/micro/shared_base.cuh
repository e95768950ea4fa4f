// out[t] = SharedBase() % 1024 of a block with shared memory.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = 64;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  StoreShared<u8>(SharedBase() + ThreadIndex(), 1);
  Out(args, ThreadIndex(), SharedBase() % 1024);
}
