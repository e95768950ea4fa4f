// out[3i..3i+2] = ShuffleFrom of in[2i] as u32, i32 and float, from the lane in
// in[2i+1], a lane of its own for each.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = 0;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int i = static_cast<int>(BlockIndex()) * 64 + ThreadIndex();
  const u32 x = In(args, 2 * i);
  const int lane = static_cast<int>(In(args, 2 * i + 1));
  Out(args, 3 * i, ShuffleFrom(x, lane));
  Out(args, 3 * i + 1, static_cast<u32>(ShuffleFrom(static_cast<i32>(x), 5)));
  OutF32(args, 3 * i + 2, ShuffleFrom(FromBits(x), 31 - lane));
}
