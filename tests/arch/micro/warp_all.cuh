// out[i] = WarpAll(in[i] != 0) over each warp.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = 0;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int i = static_cast<int>(BlockIndex()) * 64 + ThreadIndex();
  Out(args, i, WarpAll(In(args, i) != 0));
}
