// out[i] = Floor(in[i])
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  OutF32(args, i, Floor(InF32(args, i)));
}
