// out[i] = F32x2ToE5m2x2(in[2i], in[2i+1])
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  Out(args, i, F32x2ToE5m2x2(InF32(args, 2 * i), InF32(args, 2 * i + 1)));
}
