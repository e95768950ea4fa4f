// Codes to images of operands, as kernels/extend/ring.cuh has them.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_CONVERT_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_CONVERT_CUH_

#include "kernels/extend/ring.cuh"

namespace kvforge::kernels {

// Operands of the four channels of a step, neighbours in the order of channels
// where V's columns are written from them.
template <class Side, int kDim, bool kInOrder>
__device__ __forceinline__ void DecodeStep(const ops::KeyRun<Side, kDim>& keys,
                                           int i, u32 (&out)[2]) {
  keys.Decode(i, out);
  if constexpr (kInOrder && ops::ChannelOrder<Side, kDim>::kApart == 2) {
    const u32 even = out[0];
    out[0] = arch::BytePermute(even, out[1], 0x5410);
    out[1] = arch::BytePermute(even, out[1], 0x7632);
  }
}

// Where an image and its keys' row terms are written.
struct SharedImage {
  u32 image;
  u32 terms;
  template <class Words>
  __device__ __forceinline__ void StoreImage(int offset, Words words) const {
    arch::StoreShared(image + offset, words);
  }
  __device__ __forceinline__ void StoreTerm(int offset, u32 word) const {
    arch::StoreShared(terms + offset, word);
  }
};

// Row terms of 16 keys.
template <class Side, int kDim, bool kValues, class Image>
__device__ __forceinline__ void WriteTerms(ops::GroupPlace group, int first_key,
                                           Image to, int lane) {
  using Ring = ExtendRing;
  if constexpr (Side::kRowScale) {
    const ops::RowTerms terms =
        ops::LoadRowTerms<Side, kDim>(group, lane % ops::kGroupKeys);
    const int key = first_key + lane;
    const int at = key % 8 / 2 * Ring::kLaneBytes + (key / 8 * 2 + key % 2) * 4;
    if (lane < ops::kGroupKeys) {
      to.StoreTerm(at, arch::Bits(terms.scale));
    }
    if constexpr (kValues) {
      float top = arch::Abs(spec::ValueWeight(1.0f, terms.scale));
#pragma unroll
      for (int mask = 1; mask < ops::kGroupKeys; mask *= 2) {
        top = arch::Max(top, arch::ShuffleXor(top, mask));
      }
      if (lane == 0) {
        to.StoreTerm(Ring::kScalesBytes + first_key / ops::kGroupKeys * 4,
                     arch::Bits(top));
      }
    }
  }
}

// 16 keys to the image, from key first_key on. A lane takes a key and a fourth
// of a run, and writes 8 channels, steps 2u and 2u + 1, to one unit of 16
// bytes: unit 4 u + t of the key. Eight lanes that store together write to rows
// four apart, whose units lie in different banks.
template <class Side, int kDim, bool kInOrder, class Image>
__device__ __forceinline__ void ConvertGroup(ops::GroupPlace group,
                                             int first_key, Image to,
                                             int lane) {
  using KeyRun = ops::KeyRun<Side, kDim>;
  using Order = typename KeyRun::Order;
  static_assert(KeyRun::kSteps % 2 == 0);
  const int g = lane / 4;
  const int t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = g / 2 + g % 2 * 4;
    const int key = half * 8 + row;
    const int line = (first_key + key) * ExtendRing::kLineBytes;
#pragma unroll
    for (int run = 0; run < Order::kRuns; ++run) {
#pragma unroll
      for (int part = 0; part < KeyRun::kParts; ++part) {
        KeyRun keys;
        keys.Load(group, key, run, part, t);
#pragma unroll
        for (int i = 0; i < KeyRun::kSteps; i += 2) {
          u32 first[2];
          u32 second[2];
          DecodeStep<Side, kDim, kInOrder>(keys, i, first);
          DecodeStep<Side, kDim, kInOrder>(keys, i + 1, second);
          const int u =
              (run * Order::kStepsPerRun + part * KeyRun::kSteps + i) / 2;
          const int unit = (u % 2 * 4 + t) ^ row;
          to.StoreImage(line + u / 2 * ExtendRing::kHalfBytes + unit * 16,
                        U32x4{{first[0], first[1], second[0], second[1]}});
        }
      }
    }
  }
  WriteTerms<Side, kDim, kInOrder>(group, first_key, to, lane);
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_CONVERT_CUH_
