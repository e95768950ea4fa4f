// out[i] = Log2(in[i])
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  OutF32(args, i, Log2(InF32(args, i)));
}
