// out[i] = BothHalves(in[i])
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  Out(args, i, BothHalves(static_cast<u16>(In(args, i))));
}
