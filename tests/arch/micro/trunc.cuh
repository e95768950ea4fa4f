// out[i] = Trunc(in[i])
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  OutF32(args, i, Trunc(InF32(args, i)));
}
