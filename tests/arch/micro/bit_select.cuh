// out[i] = BitSelect(in[3i], in[3i+1], in[3i+2])
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  Out(args, i,
      BitSelect(In(args, 3 * i), In(args, 3 * i + 1), In(args, 3 * i + 2)));
}
