// Reverses each warp's 32 words through shared memory, in n rounds with one
// word added a round.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = 256;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int i = static_cast<int>(BlockIndex()) * 64 + ThreadIndex();
  const int t = ThreadIndex();
  const u32 own = SharedBase() + 4 * t;
  const u32 mirrored = SharedBase() + 4 * (t ^ 31);
  StoreShared(own, In(args, i));
  for (int round = 0; round < args.n; ++round) {
    WarpSync();
    const u32 x = LoadShared<u32>(mirrored);
    WarpSync();
    StoreShared(own, x + 1);
  }
  WarpSync();
  Out(args, i, LoadShared<u32>(own));
}
