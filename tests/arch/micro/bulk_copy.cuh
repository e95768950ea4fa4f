// Copies 64 times n words, in n copies of 256 bytes that one barrier counts,
// and writes them.
#include "micro/args.cuh"

namespace kvforge {

inline constexpr int kMostBytes = 4096;

}  // namespace kvforge

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = kvforge::kMostBytes + 8;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const u32 barrier = SharedBase() + kMostBytes;
  if (ThreadIndex() == 0) MbarrierInit(barrier, 1);
  BlockSync();
  if (ThreadIndex() == 0) {
    ExpectBytes(barrier, 256 * args.n);
    for (int i = 0; i < args.n; ++i) {
      BulkCopy(SharedBase() + 256 * i, args.in + 64 * i, 256, barrier);
    }
    MbarrierArrive(barrier);
  }
  MbarrierWait(barrier, 0);
  for (int i = ThreadIndex(); i < 64 * args.n; i += 64) {
    Out(args, i, LoadShared<u32>(SharedBase() + 4 * i));
  }
}
