// out[i] = Fma(in[3i], in[3i+1], in[3i+2])
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  OutF32(
      args, i,
      Fma(InF32(args, 3 * i), InF32(args, 3 * i + 1), InF32(args, 3 * i + 2)));
}
