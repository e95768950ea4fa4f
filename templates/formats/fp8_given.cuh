// e4m3_tensor, e4m3_head, e4m3_channel, e5m2_tensor: codes of 8 bits with a
// given f32 scale, one for the whole side, one per kv head or one per kv head
// and channel.
//
//   one row: head_dim codes; code = encode(x / scale), true division;
//   value = code * scale
#ifndef KVFORGE_TEMPLATES_FORMATS_FP8_GIVEN_CUH_
#define KVFORGE_TEMPLATES_FORMATS_FP8_GIVEN_CUH_

#include "formats/quantizer.cuh"
#include "formats/row_scale.cuh"

namespace kvforge::formats {

template <class Encode>
struct Fp8Tensor : Quantizer {
  static constexpr int kCodeBits = 8;
  template <int kLanes>
  static __device__ __forceinline__ void Quantize(const float (&x)[16],
                                                  float given_scale,
                                                  u32 (&codes)[4], Sidecars&) {
    float quotient[16];
    DivideAll(x, LaneAmax(x), given_scale, quotient);
    EncodeBytes<Encode>(quotient, codes);
  }
};

template <class Encode>
struct Fp8Head : Fp8Tensor<Encode> {
  static constexpr bool kGivenPerHead = true;
};

template <class Encode>
struct Fp8Channel : Quantizer {
  static constexpr int kCodeBits = 8;
  static constexpr bool kGivenPerChannel = true;
  template <int kLanes>
  static __device__ __forceinline__ void Quantize(const float (&quotient)[16],
                                                  float, u32 (&codes)[4],
                                                  Sidecars&) {
    EncodeBytes<Encode>(quotient, codes);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_FP8_GIVEN_CUH_
