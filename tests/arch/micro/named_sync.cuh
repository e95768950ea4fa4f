// Two pairs of warps take turns n times: warps 0 and 1 add their words to what
// warps 2 and 3 left, in reverse order, and the other way round. The pair whose
// turn it is not waits at its named barrier; the other only arrives there.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 128;
extern "C" __constant__ int kvforge_shared_bytes = 64 * 4;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int pair = ThreadIndex() / 64;
  const int t = ThreadIndex() % 64;
  const u32 word =
      In(args, static_cast<int>(BlockIndex()) * 128 + pair * 64 + t);
  if (pair == 0) StoreShared(SharedBase() + 4 * t, 0u);
  for (int turn = 0; turn < args.n; ++turn) {
    // The first turn of warps 0 and 1 waits for nobody but themselves.
    if (pair == 1 || turn > 0) NamedSync(2 + pair, 128);
    NamedSync(4 + pair, 64);
    const u32 x = LoadShared<u32>(SharedBase() + 4 * (63 - t));
    NamedSync(4 + pair, 64);
    StoreShared(SharedBase() + 4 * t, x + word);
    if (pair == 0 || turn + 1 < args.n) NamedArrive(2 + (1 - pair), 128);
  }
  if (pair == 1) {
    Out(args, static_cast<int>(BlockIndex()) * 64 + t,
        LoadShared<u32>(SharedBase() + 4 * t));
  }
}
