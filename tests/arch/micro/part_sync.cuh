// As warp_sync, but by PartSync of the first 32 of the block's 64 threads; the
// others add n to their words.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = 128;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int i = static_cast<int>(BlockIndex()) * 64 + ThreadIndex();
  const int t = ThreadIndex();
  if (t >= 32) {
    Out(args, i, In(args, i) + args.n);
    return;
  }
  StoreShared(SharedBase() + 4 * t, In(args, i));
  for (int round = 0; round < args.n; ++round) {
    PartSync<32>();
    const u32 x = LoadShared<u32>(SharedBase() + 4 * (31 - t));
    PartSync<32>();
    StoreShared(SharedBase() + 4 * t, x + 1);
  }
  PartSync<32>();
  Out(args, i, LoadShared<u32>(SharedBase() + 4 * t));
}
