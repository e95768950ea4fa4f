// bf16, f16: 16-bit caches, stored as given and used as operands unchanged.
//
//   one row: head_dim values of 2 bytes
#ifndef KVFORGE_TEMPLATES_FORMATS_PLAIN_CUH_
#define KVFORGE_TEMPLATES_FORMATS_PLAIN_CUH_

#include "formats/element.cuh"

namespace kvforge::formats {

// Four values in (lo, hi) are two pairs of operands already.
__device__ __forceinline__ void PassThrough4(u32 lo, u32 hi, u32 (&out)[2]) {
  out[0] = lo;
  out[1] = hi;
}

// Quantizer interface (one for each format that is stored), called by the
// kLanes lanes that hold one row, 16 consecutive values each; lanes past the
// row's end hold zeros:
//   Quantize<kLanes>(x, given_scale, codes, row_scale, block_scale)
// `codes` are the lane's 16 codes, `row_scale` is equal in all lanes,
// `block_scale` is the code of the lane's own block.
template <class E>
struct PlainRow {
  using Element = E;  // source rows of this type are copied bit for bit
  static constexpr int kCodeBits = 16;
  static constexpr bool kRowScale = false;
  static constexpr int kBlock = 0;
  template <int kLanes>
  static __device__ __forceinline__ void Quantize(const float (&x)[16], float,
                                                  u32 (&codes)[8], float&,
                                                  u32&) {
#pragma unroll
    for (int i = 0; i < 8; ++i) E::FromF32x2(x[2 * i], x[2 * i + 1], &codes[i]);
  }
};
using Bf16Row = PlainRow<Bf16>;
using F16Row = PlainRow<F16>;

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_PLAIN_CUH_
