// e4m3_tensor: e4m3fn codes with one given f32 scale for the whole side.
//
//   one row: head_dim codes; code = e4m3(x / scale), true division;
//   value = code * scale
#ifndef KVFORGE_TEMPLATES_FORMATS_E4M3_TENSOR_CUH_
#define KVFORGE_TEMPLATES_FORMATS_E4M3_TENSOR_CUH_

#include "formats/e4m3.cuh"

namespace kvforge::formats {

template <class Encode>
struct E4m3Tensor {
  using Element = void;
  static constexpr int kCodeBits = 8;
  static constexpr bool kRowScale = false;
  static constexpr int kBlock = 0;
  template <int kLanes>
  static __device__ __forceinline__ void Quantize(const float (&x)[16],
                                                  float given_scale,
                                                  u32 (&codes)[4], float&,
                                                  u32&) {
    float quotient[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) quotient[i] = x[i] / given_scale;
    E4m3Encode16<Encode>(quotient, codes);
  }
};

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_E4M3_TENSOR_CUH_
