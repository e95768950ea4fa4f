// e4m3 codes as operands of a dot, as they are.
#ifndef KVFORGE_TEMPLATES_FORMATS_E4M3_OPERAND_CUH_
#define KVFORGE_TEMPLATES_FORMATS_E4M3_OPERAND_CUH_

#include "arch/select.cuh"

namespace kvforge::formats {

struct E4m3Operand {
  static constexpr float kMax = 448.0f;
  // Four codes, the first in the low byte; to nearest even, saturating.
  static __device__ __forceinline__ u32 Pack4(float a, float b, float c,
                                              float d) {
    return arch::BytePermute(arch::F32x2ToE4m3x2(a, b),
                             arch::F32x2ToE4m3x2(c, d), 0x5410);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_E4M3_OPERAND_CUH_
