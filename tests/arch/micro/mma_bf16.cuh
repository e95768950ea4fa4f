// A warp a block: in[320 block + 10 lane ..] are a[4], b[2] and d[4] of each
// lane; out[128 block + 4 lane ..] is d after MmaBf16.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 32;
extern "C" __constant__ int kvforge_shared_bytes = 0;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int lane = ThreadIndex();
  const int block = static_cast<int>(BlockIndex());
  const int words = 320 * block + 10 * lane;
  u32 a[4];
  u32 b[2];
  float d[4];
  for (int i = 0; i < 4; ++i) a[i] = In(args, words + i);
  for (int i = 0; i < 2; ++i) b[i] = In(args, words + 4 + i);
  for (int i = 0; i < 4; ++i) d[i] = InF32(args, words + 6 + i);
  MmaBf16(d, a, b);
  for (int i = 0; i < 4; ++i) OutF32(args, 128 * block + 4 * lane + i, d[i]);
}
