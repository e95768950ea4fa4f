// out[i] = AddF16x2(in[2i], in[2i+1])
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  Out(args, i, AddF16x2(In(args, 2 * i), In(args, 2 * i + 1)));
}
