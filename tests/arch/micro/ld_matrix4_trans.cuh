// 128 words to shared memory, then LdMatrix4Trans of row (5 lane) % 32: matrix
// m holds rows (5 (8 m + r)) % 32 of four words. out[4 lane ..] are its
// results.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 32;
extern "C" __constant__ int kvforge_shared_bytes = 512;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int lane = ThreadIndex();
  for (int i = 0; i < 4; ++i) {
    StoreShared(SharedBase() + 16 * lane + 4 * i, In(args, 4 * lane + i));
  }
  WarpSync();
  u32 r[4];
  LdMatrix4Trans(r, SharedBase() + 5 * lane % 32 * 16);
  for (int i = 0; i < 4; ++i) Out(args, 4 * lane + i, r[i]);
}
