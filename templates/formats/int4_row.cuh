// int4_row: unsigned 4-bit codes with an f32 scale and an f32 minimum per
// (token, kv head).
//
//   one row: head_dim / 2 bytes of codes, element 2i in the low nibble
//   sidecar: scale = max(max - min, 1e-10) / 15, then min, adjacent
//   code = clamp(rint((x - min) / scale), 0, 15), true division;
//   value = code * scale + min
//
// max, min and their difference are kept within the largest f32; of two zeros
// -0 is the smaller. A row with a NaN has scale and minimum NaN and codes 0.
#ifndef KVFORGE_TEMPLATES_FORMATS_INT4_ROW_CUH_
#define KVFORGE_TEMPLATES_FORMATS_INT4_ROW_CUH_

#include "formats/quantizer.cuh"
#include "formats/row_scale.cuh"

namespace kvforge::formats {

template <class Encode>
struct Int4Row : Quantizer {
  static constexpr int kCodeBits = 4;
  static constexpr bool kRowScale = true;
  static constexpr bool kRowMinimum = true;
  template <int kLanes>
  static __device__ __forceinline__ void Quantize(const float (&x)[16], float,
                                                  u32 (&codes)[2],
                                                  Sidecars& sidecars) {
    float high = -kMaxF32;
    float negated_low = -kMaxF32;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      high = arch::MaxNan(high, x[i]);
      negated_low = arch::MaxNan(negated_low, -x[i]);
    }
    high = RowMax<kLanes>(high);
    const float low = -RowMax<kLanes>(negated_low);
    const float difference = high - low;
    const float span = difference > kMaxF32 ? kMaxF32 : difference;
    const float row_scale = AtLeastMinAmax(span) / 15.0f;
    sidecars.row_scale = row_scale;
    sidecars.row_minimum = low;
    float above_low[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) above_low[i] = x[i] - low;
    float quotient[16];
    // Infinities leave kMaxF32 in one of the two.
    DivideAll(above_low, arch::MaxNan(high, -low), row_scale, quotient);
    EncodeNibbles<Encode>(quotient, codes);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_INT4_ROW_CUH_
