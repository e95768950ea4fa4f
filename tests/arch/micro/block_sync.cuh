// Reverses each block's 64 words through shared memory, in place, in n rounds
// with one word added a round.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = 256;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int i = static_cast<int>(BlockIndex()) * 64 + ThreadIndex();
  const int t = ThreadIndex();
  StoreShared(SharedBase() + 4 * t, In(args, i));
  for (int round = 0; round < args.n; ++round) {
    BlockSync();
    const u32 x = LoadShared<u32>(SharedBase() + 4 * (63 - t));
    BlockSync();
    StoreShared(SharedBase() + 4 * t, x + 1);
  }
  BlockSync();
  Out(args, i, LoadShared<u32>(SharedBase() + 4 * t));
}
