// out[i] = Bits(FromBits(in[i]))
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  Out(args, i, Bits(FromBits(In(args, i))));
}
