// Each block adds its 64 words to a counter, and n times 1; then writes it.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = 0;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int block = static_cast<int>(BlockIndex());
  unsigned* const counter = args.out + block;
  if (ThreadIndex() == 0) StoreGlobal<u32>(counter, 5);
  BlockSync();
  AddGlobal(counter, In(args, block * 64 + ThreadIndex()));
  BlockSync();
  if (ThreadIndex() == 0) {
    u32 before = 0;
    for (int i = 0; i < args.n; ++i) before = AddGlobal(counter, 1u);
    StoreGlobal<u32>(counter, before);
  }
}
