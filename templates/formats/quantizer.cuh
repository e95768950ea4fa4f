// What the row quantizers share. A quantizer is a format as the store kernel
// writes it, called by the kLanes lanes that hold one row, 16 consecutive
// values each; lanes past the row's end hold its last 16 values again:
//   Quantize<kLanes>(x, given_scale, codes, sidecars)
// `codes` are the lane's 16 codes, in the order of their bytes in the cache.
#ifndef KVFORGE_TEMPLATES_FORMATS_QUANTIZER_CUH_
#define KVFORGE_TEMPLATES_FORMATS_QUANTIZER_CUH_

#include "arch/select.cuh"

namespace kvforge::formats {

// What a quantizer is where it does not say otherwise.
struct Quantizer {
  using Element = void;  // source rows of this type are copied bit for bit
  static constexpr bool kRowScale = false;
  static constexpr bool kRowMinimum = false;    // beside the row scale
  static constexpr int kBlock = 0;              // values of a block scale
  static constexpr bool kGivenPerHead = false;  // of the given scale
  // One given scale a channel: x comes divided by it.
  static constexpr bool kGivenPerChannel = false;
};

// What is stored beside the codes, as far as the format has it.
struct Sidecars {
  float row_scale;  // equal in all lanes of the row
  float row_minimum;
  u32 block_scale;  // code of the block that the lane's values lie in
};

// 16 values to 16 codes of a byte each.
template <class Encode>
__device__ __forceinline__ void EncodeBytes(const float (&x)[16],
                                            u32 (&codes)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    codes[i] = Encode::Pair(x[4 * i], x[4 * i + 1]) |
               (Encode::Pair(x[4 * i + 2], x[4 * i + 3]) << 16);
  }
}

// 16 values to 16 codes of 4 bits each.
template <class Encode>
__device__ __forceinline__ void EncodeNibbles(const float (&x)[16],
                                              u32 (&codes)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    codes[i] = 0;
#pragma unroll
    for (int j = 3; j >= 0; --j) {
      codes[i] =
          codes[i] * 256 + Encode::Pair(x[8 * i + 2 * j], x[8 * i + 2 * j + 1]);
    }
  }
}

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_QUANTIZER_CUH_
