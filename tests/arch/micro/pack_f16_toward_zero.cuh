// out[i] = PackF16TowardZero(in[2i], in[2i+1])
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  Out(args, i, PackF16TowardZero(InF32(args, 2 * i), InF32(args, 2 * i + 1)));
}
