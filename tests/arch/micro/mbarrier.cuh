// Warp 0 copies n times 32 words through two stages, by asynchronous copies
// that arrive at the stage's barrier; warp 1 waits for them, writes the words
// in reverse order and gives the stage back.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = 2 * 128 + 4 * 8;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int warp = ThreadIndex() / 32;
  const int lane = ThreadIndex() % 32;
  const u32 filled = SharedBase() + 2 * 128;
  const u32 free = filled + 16;
  if (ThreadIndex() == 0) {
    for (int stage = 0; stage < 2; ++stage) {
      MbarrierInit(filled + 8 * stage, 32);
      MbarrierInit(free + 8 * stage, 1);
    }
  }
  BlockSync();
  for (int step = 0; step < args.n; ++step) {
    const u32 stage = step % 2;
    const u32 parity = step / 2 % 2;
    const u32 words = SharedBase() + 128 * stage;
    if (warp == 0) {
      if (step >= 2) MbarrierWait(free + 8 * stage, parity ^ 1);
      CpAsync<4>(words + 4 * lane, args.in + 32 * step + lane, true);
      CpAsyncArrive(filled + 8 * stage);
    } else {
      MbarrierWait(filled + 8 * stage, parity);
      const u32 x = LoadShared<u32>(words + 4 * (31 - lane));
      WarpSync();
      if (lane == 0) MbarrierArrive(free + 8 * stage);
      Out(args, 32 * step + lane, x);
    }
  }
}
