// mxfp8, mxfp4: e4m3 or e2m1 codes, a ue8m0 scale per 32 elements.
//
//   one row: head_dim codes (mxfp8) or head_dim / 2 bytes, element 2i in the
//   low nibble (mxfp4); sidecar: head_dim / 32 block scales s s =
//   ue8m0_ceil(amax32 / 448), amax32 / 6 for e2m1, true division code =
//   encode(x / s); value = code * s
//
// A block of zeros takes the smallest scale, code 0, and codes 0. A block with
// a NaN has scale 0xFF and codes 0x7F (mxfp8) or 0 (mxfp4).
#ifndef KVFORGE_TEMPLATES_FORMATS_MX_CUH_
#define KVFORGE_TEMPLATES_FORMATS_MX_CUH_

#include "formats/quantizer.cuh"
#include "formats/row_scale.cuh"
#include "formats/ue8m0.cuh"

namespace kvforge::formats {

// Two lanes hold a block. Its scale's code; x becomes the quotients.
template <class EncodeScale>
__device__ __forceinline__ u32 DivideByMxScale(float (&x)[16],
                                               float largest_code) {
  const float amax32 = RowMax<2>(LaneAmax(x));
  const u32 code = EncodeScale::Pair(amax32 / largest_code, 0.0f) & 0xffu;
  DivideAll(x, amax32, Ue8m0ToF32(code), x);
  return code;
}

template <class EncodeScale, class Encode>
struct Mxfp8 : Quantizer {
  static constexpr int kCodeBits = 8;
  static constexpr int kBlock = 32;
  template <int kLanes>
  static __device__ __forceinline__ void Quantize(float (&x)[16], float,
                                                  u32 (&codes)[4],
                                                  Sidecars& sidecars) {
    sidecars.block_scale = DivideByMxScale<EncodeScale>(x, 448.0f);
    EncodeBytes<Encode>(x, codes);
  }
};

template <class EncodeScale, class Encode>
struct Mxfp4 : Quantizer {
  static constexpr int kCodeBits = 4;
  static constexpr int kBlock = 32;
  template <int kLanes>
  static __device__ __forceinline__ void Quantize(float (&x)[16], float,
                                                  u32 (&codes)[2],
                                                  Sidecars& sidecars) {
    sidecars.block_scale = DivideByMxScale<EncodeScale>(x, 6.0f);
    EncodeNibbles<Encode>(x, codes);
    if (sidecars.block_scale == 0xffu) codes[0] = codes[1] = 0;
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_MX_CUH_
