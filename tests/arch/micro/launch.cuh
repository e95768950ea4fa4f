// out[3i], out[3i+1], out[3i+2] = ThreadIndex, BlockIndex, BlockCount of thread
// i of the grid.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = 0;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int i = static_cast<int>(BlockIndex()) * 64 + ThreadIndex();
  Out(args, 3 * i, static_cast<u32>(ThreadIndex()));
  Out(args, 3 * i + 1, static_cast<u32>(BlockIndex()));
  Out(args, 3 * i + 2, static_cast<u32>(BlockCount()));
}
