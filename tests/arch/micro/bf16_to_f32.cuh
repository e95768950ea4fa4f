// out[i] = Bf16ToF32(in[i])
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  OutF32(args, i, Bf16ToF32(static_cast<u16>(In(args, i))));
}
