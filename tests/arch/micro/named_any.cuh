// Each pair of warps of 128 threads votes at a barrier of its own, n times; out
// is a bit for each vote that someone's word said yes to.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 128;
extern "C" __constant__ int kvforge_shared_bytes = 0;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int i = static_cast<int>(BlockIndex()) * 128 + ThreadIndex();
  const u32 word = In(args, i);
  u32 votes = 0;
  for (int bit = 0; bit < args.n; ++bit) {
    const bool any =
        NamedAny(2 + ThreadIndex() / 64, 64, (word >> bit & 1u) != 0);
    if (any) votes |= 1u << bit;
  }
  Out(args, i, votes);
}
