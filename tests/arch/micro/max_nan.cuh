// out[i] = MaxNan(in[2i], in[2i+1])
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  OutF32(args, i, MaxNan(InF32(args, 2 * i), InF32(args, 2 * i + 1)));
}
