// nvfp4_row, nvfp4: e2m1 codes, an e4m3 scale per 16 elements, and an f32 scale
// r: per (token, kv head) in nvfp4_row, given in nvfp4.
//
//   one row: head_dim / 2 bytes of codes, element 2i in the low nibble
//   sidecars: head_dim / 16 block scales b; the row scale r of nvfp4_row
//   r = max(amax, 1e-10) / 2688;  b = e4m3(amax16 / (6 * r))
//   code = e2m1(x / (b * r)) with the stored b, 0 where b * r is 0
//   value = code * b * r
//
// A row with a NaN has r NaN, block scales 0x7F and codes 0; where r is given,
// a block with a NaN has block scale 0x7F and codes 0.
#ifndef KVFORGE_TEMPLATES_FORMATS_NVFP4_CUH_
#define KVFORGE_TEMPLATES_FORMATS_NVFP4_CUH_

#include "formats/e2m1.cuh"
#include "formats/e4m3.cuh"
#include "formats/quantizer.cuh"
#include "formats/row_scale.cuh"

namespace kvforge::formats {

// Codes and block scale of one block under the row's or given scale.
template <class EncodeScale, class Encode>
__device__ __forceinline__ void QuantizeNvfp4Block(const float (&x)[16],
                                                   float amax16, float r,
                                                   u32 (&codes)[2],
                                                   u32& block_scale) {
  block_scale = EncodeScale::Pair(amax16 / (6.0f * r), 0.0f) & 0xffu;
  const float scale = E4m3ToF32(block_scale) * r;
  const bool usable = scale > 0;  // neither 0 nor NaN
  float quotient[16];
  DivideAll(x, amax16, usable ? scale : 1.0f, quotient);
  EncodeNibbles<Encode>(quotient, codes);
  if (!usable) codes[0] = codes[1] = 0;
}

template <class EncodeScale, class Encode>
struct Nvfp4Row : Quantizer {
  static constexpr int kCodeBits = 4;
  static constexpr bool kRowScale = true;
  static constexpr int kBlock = 16;
  template <int kLanes>
  static __device__ __forceinline__ void Quantize(const float (&x)[16], float,
                                                  u32 (&codes)[2],
                                                  Sidecars& sidecars) {
    const float amax16 = RowMax<1>(LaneAmax(x));
    sidecars.row_scale = AtLeastMinAmax(RowMax<kLanes>(amax16)) / 2688.0f;
    QuantizeNvfp4Block<EncodeScale, Encode>(x, amax16, sidecars.row_scale,
                                            codes, sidecars.block_scale);
  }
};

template <class EncodeScale, class Encode>
struct Nvfp4 : Quantizer {
  static constexpr int kCodeBits = 4;
  static constexpr int kBlock = 16;
  template <int kLanes>
  static __device__ __forceinline__ void Quantize(const float (&x)[16],
                                                  float given_scale,
                                                  u32 (&codes)[2],
                                                  Sidecars& sidecars) {
    QuantizeNvfp4Block<EncodeScale, Encode>(
        x, RowMax<1>(LaneAmax(x)), given_scale, codes, sidecars.block_scale);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_NVFP4_CUH_
