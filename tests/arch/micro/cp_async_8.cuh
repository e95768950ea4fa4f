// Copies 8 bytes a thread by CpAsync<8>; the thread's copy is valid if word
// 128 + t of the block's input is not 0. Blocks read 128 + 64 words.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = 512;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  constexpr int kWords = 2;
  const int t = ThreadIndex();
  const int block = static_cast<int>(BlockIndex());
  const unsigned* in = args.in + block * 64 * (kWords + 1);
  const bool valid = LoadGlobal<u32>(in + 64 * kWords + t) != 0;
  CpAsync<4 * kWords>(SharedBase() + 4 * kWords * t, in + kWords * t, valid);
  CpAsyncCommit();
  CpAsyncWait<0>();
  BlockSync();
  // Another thread's copy: it is visible after the wait and the barrier.
  for (int i = 0; i < kWords; ++i) {
    const int word = kWords * (63 - t) + i;
    Out(args, block * 64 * kWords + word,
        LoadShared<u32>(SharedBase() + 4 * word));
  }
}
