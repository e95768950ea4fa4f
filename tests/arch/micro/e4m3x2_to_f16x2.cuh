// out[i] = E4m3x2ToF16x2(in[i])
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  Out(args, i, E4m3x2ToF16x2(static_cast<u16>(In(args, i))));
}
