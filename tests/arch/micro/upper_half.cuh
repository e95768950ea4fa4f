// out[i] = UpperHalf(in[i])
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  Out(args, i, UpperHalf(In(args, i)));
}
