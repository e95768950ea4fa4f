// nvfp4_row: e2m1 codes, an e4m3 scale per 16 elements, an f32 scale per
// (token, kv head).
//
//   one row: head_dim / 2 bytes of codes, element 2i in the low nibble
//   sidecars: head_dim / 16 block scales b, one row scale r
//   r = max(amax, 1e-10) / 2688;  b = e4m3(amax16 / (6 * r))
//   code = e2m1(x / (b * r)) with the stored b, 0 where b * r is 0
//   value = code * b * r
//
// A row with a NaN has r NaN, block scales 0x7F and codes 0.
#ifndef KVFORGE_TEMPLATES_FORMATS_NVFP4_ROW_CUH_
#define KVFORGE_TEMPLATES_FORMATS_NVFP4_ROW_CUH_

#include "formats/e2m1.cuh"
#include "formats/e4m3.cuh"
#include "formats/row_scale.cuh"

namespace kvforge::formats {

template <class EncodeScale, class Encode>
struct Nvfp4Row {
  using Element = void;
  static constexpr int kCodeBits = 4;
  static constexpr bool kRowScale = true;
  static constexpr int kBlock = 16;
  template <int kLanes>
  static __device__ __forceinline__ void Quantize(const float (&x)[16], float,
                                                  u32 (&codes)[2],
                                                  float& row_scale,
                                                  u32& block_scale) {
    const float amax16 = RowAmax<1>(LaneAmax(x));
    row_scale = AtLeastMinAmax(RowAmax<kLanes>(amax16)) / 2688.0f;
    block_scale = EncodeScale::Pair(amax16 / (6.0f * row_scale), 0.0f) & 0xffu;
    const float scale = E4m3ToF32(block_scale) * row_scale;
    const bool usable = scale > 0;  // neither 0 nor NaN
    float quotient[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) quotient[i] = usable ? x[i] / scale : 0.0f;
    E2m1Encode16<Encode>(quotient, codes);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_NVFP4_ROW_CUH_
