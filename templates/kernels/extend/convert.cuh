// Codes to images of operands, as kernels/extend/ring.cuh has them.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_CONVERT_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_CONVERT_CUH_

#include "formats/row_scale.cuh"
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

// How an image holds 16 keys of V whose weights have factors f. Folded, it is
//
//   f16(v * f / weight)   weight = 2^log2 the power of two 2 to 4 octaves above
//                         the largest |f|
//
// for keys that are all weighed by 2^log2: one factor less for each score. What
// it rounds it rounds once, as p * f is elsewhere. Decoded codes are below
// 4096, so that nothing overflows; keys whose factors are 2^-16 of the largest
// still keep all bits. Where factors lie further apart, or one is no number,
// the image holds v itself, and log2 is NaN.
struct ValueUnit {
  static constexpr int kOctaves = 3;
  bool folds = false;
  float log2 = 0;
  float weight = 1;
  float inverse = 1;  // 1 / weight

  // All lanes; `factor` of key lane % 16.
  static __device__ __forceinline__ ValueUnit Of(float factor) {
    const float magnitude = arch::Abs(factor);
    float top = magnitude;
    float least = magnitude > 0 ? magnitude : formats::kMaxF32;
#pragma unroll
    for (int mask = 1; mask < ops::kGroupKeys; mask *= 2) {
      top = arch::Max(top, arch::ShuffleXor(top, mask));
      least = arch::Min(least, arch::ShuffleXor(least, mask));
    }
    ValueUnit unit;
    unit.folds = !arch::WarpAny(!(magnitude <= formats::kMaxF32)) &&
                 least >= top * 0x1p-16f;
    // Not so small that its inverse is infinite.
    int exponent = static_cast<int>(arch::Bits(top) >> 23) - 127;
    exponent = (exponent < -100 ? -100 : exponent) - kOctaves;
    unit.log2 = static_cast<float>(exponent);
    unit.weight = arch::FromBits(static_cast<u32>(127 + exponent) << 23);
    unit.inverse = arch::FromBits(static_cast<u32>(127 - exponent) << 23);
    return unit;
  }
};

template <class Operand>
__device__ __forceinline__ u32 ScaledPair(u32 pair, float factor) {
  float lo, hi;
  Operand::Unpack(pair, lo, hi);
  return Operand::Pack(lo * factor, hi * factor);
}

// Row terms of 16 keys. `shared`: a factor of all; `unit`: of V's image.
template <class Side, int kDim, bool kValues, class Image>
__device__ __forceinline__ void WriteTerms(ops::GroupPlace group, int first_key,
                                           float shared, const ValueUnit& unit,
                                           Image to, int lane) {
  using Ring = ExtendRing;
  if constexpr (Side::kRowScale) {
    float scale =
        ops::LoadRowTerms<Side, kDim>(group, lane % ops::kGroupKeys).scale;
    if constexpr (kValues) {
      if (unit.folds) scale = unit.weight / spec::ValueWeight(1.0f, 1.0f);
    } else if constexpr (ExtendShape::kUniformInTerms) {
      scale *= shared;
    }
    const int key = first_key + lane;
    const int at = key % 8 / 2 * Ring::kLaneBytes + (key / 8 * 2 + key % 2) * 4;
    if (lane < ops::kGroupKeys) {
      to.StoreTerm(at, arch::Bits(scale));
    }
    if constexpr (kValues) {
      float top = arch::Abs(spec::ValueWeight(1.0f, scale));
#pragma unroll
      for (int mask = 1; mask < ops::kGroupKeys; mask *= 2) {
        top = arch::Max(top, arch::ShuffleXor(top, mask));
      }
      if (lane == 0) {
        const int place = Ring::kScalesBytes + first_key / ops::kGroupKeys * 4;
        to.StoreTerm(place, arch::Bits(top));
        if constexpr (ExtendShape::kFoldsValues) {
          to.StoreTerm(place + Ring::kTopsBytes,
                       unit.folds ? arch::Bits(unit.log2) : 0x7fc00000u);
          to.StoreTerm(place + 2 * Ring::kTopsBytes, arch::Bits(unit.inverse));
        }
      }
    }
  }
}

// 16 keys to the image, from key first_key on. A lane takes a key and a fourth
// of a run, and writes 8 channels, steps 2u and 2u + 1, to one unit of 16
// bytes: unit 4 u + t of the key. Eight lanes that store together write to rows
// four apart, whose units lie in different banks. kInOrder: of V. `shared`: a
// factor of all of K's row terms (ExtendShape::kUniformInTerms).
template <class Side, int kDim, bool kInOrder, class Image>
__device__ __forceinline__ void ConvertGroup(ops::GroupPlace group,
                                             int first_key, float shared,
                                             Image to, int lane) {
  using KeyRun = ops::KeyRun<Side, kDim>;
  using Order = typename KeyRun::Order;
  static_assert(KeyRun::kSteps % 2 == 0);
  constexpr bool kFolds = kInOrder && ExtendShape::kFoldsValues;
  const int g = lane / 4;
  const int t = lane % 4;
  const auto factor_of = [&](int key) {
    return spec::ValueWeight(1.0f,
                             ops::LoadRowTerms<Side, kDim>(group, key).scale);
  };
  ValueUnit unit;
  if constexpr (kFolds) unit = ValueUnit::Of(factor_of(lane % ops::kGroupKeys));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = g / 2 + g % 2 * 4;
    const int key = half * 8 + row;
    const int line = (first_key + key) * ExtendRing::kLineBytes;
    float factor = 1;
    if constexpr (kFolds) {
      if (unit.folds) factor = factor_of(key) * unit.inverse;
    }
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
          if constexpr (kFolds) {
#pragma unroll
            for (int pair = 0; pair < 2; ++pair) {
              first[pair] = ScaledPair<spec::ValueOperand>(first[pair], factor);
              second[pair] =
                  ScaledPair<spec::ValueOperand>(second[pair], factor);
            }
          }
          const int u =
              (run * Order::kStepsPerRun + part * KeyRun::kSteps + i) / 2;
          const int unit = (u % 2 * 4 + t) ^ row;
          to.StoreImage(line + u / 2 * ExtendRing::kHalfBytes + unit * 16,
                        U32x4{{first[0], first[1], second[0], second[1]}});
        }
      }
    }
  }
  WriteTerms<Side, kDim, kInOrder>(group, first_key, shared, unit, to, lane);
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_CONVERT_CUH_
