// out[3i..3i+2] = ShuffleXor of in[i] as u32, i32 and float by mask 1 + block,
// 2 and block.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = 0;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int i = static_cast<int>(BlockIndex()) * 64 + ThreadIndex();
  const int block = static_cast<int>(BlockIndex());
  const u32 x = In(args, i);
  Out(args, 3 * i, ShuffleXor(x, 1 + block));
  Out(args, 3 * i + 1, static_cast<u32>(ShuffleXor(static_cast<i32>(x), 2)));
  OutF32(args, 3 * i + 2, ShuffleXor(FromBits(x), block));
}
