// One row of q on its way to 16-bit operands.
//
// An f16 operand holds a bf16 or f32 row after a power of two per row has
// brought its largest magnitude into [1, 2); the inverse goes to the scores.
//
// A row whose values the operand type cannot hold goes in two parts, the second
// what the first one's rounding left, and its dot is the sum of both: narrowed
// once, a logit of 10 would be off by more than the bound of an LSE.
#ifndef KVFORGE_TEMPLATES_OPS_QUERY_ROW_CUH_
#define KVFORGE_TEMPLATES_OPS_QUERY_ROW_CUH_

#include "formats/element.cuh"
#include "formats/operand.cuh"
#include "ops/access.cuh"

namespace kvforge::ops {

// Operand parts of a row of Element, kScaled by channel or not. The same rule
// in the memory model.
template <class Element, class Operand, bool kScaled>
inline constexpr int kQueryParts =
    kScaled || formats::kSameElement<Element, formats::F32> ||
            (formats::kSameElement<Element, formats::F16> &&
             formats::kSameElement<Operand, formats::Bf16Operand>)
        ? 2
        : 1;

// A row of q in memory, and where K's scales vary over channels the kv head's:
// they multiply q, since no dot can take them past its sum.
template <bool kScaled>
struct QueryRow {
  const u8* values;
  const float* channel_scales;  // kScaled only
};

// The four channels of one step as they lie in memory, so many words.
template <class Element, class Order>
__device__ __forceinline__ void LoadQueryWords(const u8* values, int step,
                                               int t,
                                               u32 (&words)[Element::kBytes]) {
  constexpr int kBytes = 4 * Element::kBytes;
  LoadBytes<kBytes>(values + Order::ChannelOf(step, t) * Element::kBytes,
                    kBytes, words);
}

// The same in f32, in the step's order.
template <class Element, class Order>
__device__ __forceinline__ void QueryValues(const u32 (&words)[Element::kBytes],
                                            float (&x)[4]) {
  float y[4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    Element::ToF32x2(&words[i * Element::kBytes / 2], y[2 * i], y[2 * i + 1]);
  }
  constexpr int kApart = Order::kApart;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = y[kApart == 0 ? i : i / 2 + i % 2 * kApart];
  }
}

template <class Element, class Order, bool kScaled>
__device__ __forceinline__ void LoadQueryStep(const QueryRow<kScaled>& row,
                                              int step, int t, float (&x)[4]) {
  u32 words[Element::kBytes];
  LoadQueryWords<Element, Order>(row.values, step, t, words);
  QueryValues<Element, Order>(words, x);
  if constexpr (kScaled) {
    const float* scales = row.channel_scales + Order::ChannelOf(step, t);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = x[i] * arch::LoadGlobal<float>(scales + Order::Offset(i));
    }
  }
}

struct PowerOfTwo {
  float factor;   // applied to the row
  float inverse;  // applied to its scores
};

// The power of two that brings `amax` into [1, 2), within f32's normal range;
// 1 for 0, infinity and NaN.
__device__ __forceinline__ PowerOfTwo Normalizer(float amax) {
  const u32 exponent = (arch::Bits(amax) >> 23) & 0xffu;
  if (exponent == 0xffu || amax == 0) return {1.0f, 1.0f};
  u32 field = 254u - exponent;
  field = field < 1u ? 1u : (field > 253u ? 253u : field);
  return {arch::FromBits(field << 23), arch::FromBits((254u - field) << 23)};
}

// The same for a row that many are to share a unit with: a row stays as it is
// whose largest magnitude f16 holds well, with all that counts beside it.
__device__ __forceinline__ PowerOfTwo NormalizerOfWild(float amax) {
  if (amax >= 0x1p-8f && amax < 0x1p15f) return {1.0f, 1.0f};
  return Normalizer(amax);
}

// Largest magnitude of a row from those of the channels of each of the four
// lanes t = 0..3 that share it.
__device__ __forceinline__ float RowAmax(float amax) {
  amax = arch::Max(amax, arch::ShuffleXor(amax, 1));
  return arch::Max(amax, arch::ShuffleXor(amax, 2));
}

// The same from the row, kUnroll steps at a time.
template <class Element, class Order, int kUnroll = 4, bool kScaled>
__device__ __forceinline__ float QueryAmax(const QueryRow<kScaled>& row,
                                           int t) {
  float amax = 0;
#pragma unroll kUnroll
  for (int step = 0; step < Order::kSteps; ++step) {
    float x[4];
    LoadQueryStep<Element, Order>(row, step, t, x);
#pragma unroll
    for (int i = 0; i < 4; ++i) amax = arch::Max(amax, arch::Abs(x[i]));
  }
  return RowAmax(amax);
}

// Sum of the row's values times `factor`, in f32; the four lanes t = 0..3 share
// its channels.
template <class Element, class Order, bool kScaled>
__device__ __forceinline__ float QuerySum(const QueryRow<kScaled>& row, int t,
                                          float factor) {
  float sum = 0;
#pragma unroll 4
  for (int step = 0; step < Order::kSteps; ++step) {
    float x[4];
    LoadQueryStep<Element, Order>(row, step, t, x);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum = arch::Fma(x[i], factor, sum);
  }
  sum += arch::ShuffleXor(sum, 1);
  return sum + arch::ShuffleXor(sum, 2);
}

// The two operand words of a step's channels, for each part.
template <class Element, class Operand, bool kScaled>
__device__ __forceinline__ void QueryOperands(
    float (&x)[4], float factor,
    u32 (&out)[kQueryParts<Element, Operand, kScaled>][2]) {
  constexpr int kParts = kQueryParts<Element, Operand, kScaled>;
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = x[i] * factor;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      out[part][i] = Operand::Pack(x[2 * i], x[2 * i + 1]);
      if (part + 1 == kParts) continue;
      float held[2];
      Operand::Unpack(out[part][i], held[0], held[1]);
      x[2 * i] -= held[0];
      x[2 * i + 1] -= held[1];
    }
  }
}

template <class Element, class Operand, class Order, bool kScaled>
__device__ __forceinline__ void QueryStep(
    const QueryRow<kScaled>& row, int step, int t, float factor,
    u32 (&out)[kQueryParts<Element, Operand, kScaled>][2]) {
  float x[4];
  LoadQueryStep<Element, Order>(row, step, t, x);
  QueryOperands<Element, Operand, kScaled>(x, factor, out);
}

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_QUERY_ROW_CUH_
