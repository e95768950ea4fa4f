// out[i] = in[i] + 1, between AllowNextGrid and WaitForPriorGrids
#include "micro/each.cuh"

__device__ void kvforge::MicroItem(const MicroArgs& args, int i) {
  using namespace arch;
  AllowNextGrid();
  WaitForPriorGrids();
  Out(args, i, In(args, i) + 1);
}
