// What every micro-kernel takes: n items, or as its own comment says.
#ifndef KVFORGE_TESTS_ARCH_MICRO_ARGS_CUH_
#define KVFORGE_TESTS_ARCH_MICRO_ARGS_CUH_

#include "arch/select.cuh"
#include "kernels/tensor_map.h"

namespace kvforge {

struct MicroArgs {
  const unsigned* in;
  unsigned* out;
  int n;
  TensorMap map;  // of `in`, where the case has a box
};

__device__ __forceinline__ u32 In(const MicroArgs& args, int word) {
  return arch::LoadGlobal<u32>(args.in + word);
}
__device__ __forceinline__ float InF32(const MicroArgs& args, int word) {
  return arch::FromBits(In(args, word));
}
__device__ __forceinline__ void Out(const MicroArgs& args, int word, u32 x) {
  arch::StoreGlobal(args.out + word, x);
}
__device__ __forceinline__ void OutF32(const MicroArgs& args, int word,
                                       float x) {
  arch::StoreGlobal(args.out + word, arch::Bits(x));
}

}  // namespace kvforge

#endif  // KVFORGE_TESTS_ARCH_MICRO_ARGS_CUH_
