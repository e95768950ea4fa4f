// bf16, f16: 16-bit caches, stored as given and used as operands unchanged.
//
//   one row: head_dim values of 2 bytes
#ifndef KVFORGE_TEMPLATES_FORMATS_PLAIN_CUH_
#define KVFORGE_TEMPLATES_FORMATS_PLAIN_CUH_

#include "formats/element.cuh"
#include "formats/quantizer.cuh"

namespace kvforge::formats {

// Four values in (lo, hi) are two pairs of operands already.
__device__ __forceinline__ void PassThrough4(u32 lo, u32 hi, u32 (&out)[2]) {
  out[0] = lo;
  out[1] = hi;
}

template <class E>
struct PlainRow : Quantizer {
  using Element = E;
  static constexpr int kCodeBits = 16;
  template <int kLanes>
  static __device__ __forceinline__ void Quantize(const float (&x)[16], float,
                                                  u32 (&codes)[8], Sidecars&) {
#pragma unroll
    for (int i = 0; i < 8; ++i) E::FromF32x2(x[2 * i], x[2 * i + 1], &codes[i]);
  }
};
using Bf16Row = PlainRow<Bf16>;
using F16Row = PlainRow<F16>;

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_PLAIN_CUH_
