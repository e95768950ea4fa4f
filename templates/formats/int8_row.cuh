// int8_row: signed 8-bit codes with one f32 scale per (token, kv head).
//
//   one row: head_dim codes; sidecar: scale = max(amax, 1e-10) / 127
//   code = clamp(rint(x / scale), -127, 127), true division;
//   value = code * scale
//
// A row with a NaN has scale NaN and codes 0; a row with an infinity takes its
// scale from the largest f32, the infinity saturates.
#ifndef KVFORGE_TEMPLATES_FORMATS_INT8_ROW_CUH_
#define KVFORGE_TEMPLATES_FORMATS_INT8_ROW_CUH_

#include "formats/quantizer.cuh"
#include "formats/row_scale.cuh"

namespace kvforge::formats {

template <class Encode>
struct Int8Row : Quantizer {
  static constexpr int kCodeBits = 8;
  static constexpr bool kRowScale = true;
  template <int kLanes>
  static __device__ __forceinline__ void Quantize(const float (&x)[16], float,
                                                  u32 (&codes)[4],
                                                  Sidecars& sidecars) {
    const float amax = RowMax<kLanes>(LaneAmax(x));
    const float row_scale = AtLeastMinAmax(amax) / 127.0f;
    sidecars.row_scale = row_scale;
    float quotient[16];
    DivideAll(x, amax, row_scale, quotient);
    EncodeBytes<Encode>(quotient, codes);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_INT8_ROW_CUH_
