// Online softmax of one query row, in base 2, with a separate reference for the
// weights of V.
//
//   p = 2^(s * log2e - max2)               summed unscaled: the denominator
//   w = ValueWeight(p, s_v) * 2^(max2 - ref2)   narrowed to 16 bit, times V
//
// so that sum(w * v) stands for sum(p * s_v * v) * 2^(max2 - ref2). The largest
// w is kept near 2^kHeadroom: it neither overflows f16 nor falls into its
// subnormals, however the scales of V spread between tokens.
//
// Where V's rows have a minimum besides, sum(p * minimum) is kept beside it in
// f32, in p's unit. What w loses when it is narrowed it must lose there as
// well: an error of w is worth a code, a code is worth up to 15 steps above the
// minimum, and the two cancel to a value near 0. So p is taken back from the
// narrowed w.
//
// A weight narrowed to bf16 keeps 8 bits. Its rounding is worth up to 2^-8 of
// what its key adds: for a row that few keys decide, all of the error it may
// have (docs/formats.md), and more where their values cancel. The errors are as
// independent as the values, so that dividing by the sum of the narrowed
// weights would not help; what the weights of heavy keys lose is multiplied by
// V as well. Errors of many light keys average out.
//
// References are raised only when a score passes them by more than kSlack: p
// then stays below 2^kSlack.
#ifndef KVFORGE_TEMPLATES_OPS_SOFTMAX_CUH_
#define KVFORGE_TEMPLATES_OPS_SOFTMAX_CUH_

#include "arch/select.cuh"

namespace kvforge::ops {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;
inline constexpr float kHeadroom = 9.0f;
inline constexpr float kSlack = 6.0f;  // see also PassesSlack
// V's reference stays within this many octaves of the scores' own, so that
// 2^(max2 - ref2) is finite where every scale of V is 0.
inline constexpr float kMaxGain = 120.0f;
// A key is heavy that weighs over 2^-kHeavyOctaves of all keys up to the last
// heavy one.
inline constexpr float kHeavyOctaves = 4.0f;

__device__ __forceinline__ float NegativeInfinity() {
  return arch::FromBits(0xff800000u);
}

struct SoftmaxRow {
  float max2;   // reference of p; -inf until a key was visible
  float ref2;   // reference of w
  float sum;    // of p, over the keys this thread has seen
  float gain;   // 2^(max2 - ref2); 0 until a key was visible
  float shift;  // sum of p * minimum of V, likewise

  __device__ __forceinline__ void Clear() {
    max2 = ref2 = NegativeInfinity();
    sum = gain = shift = 0;
  }

  // The unscaled weight of score s, in units of `unit2` in base 2.
  __device__ __forceinline__ float Weight(float s, float unit2) const {
    const float reference = max2 == NegativeInfinity() ? 0.0f : max2;
    return arch::Exp2(arch::Fma(s, unit2, -reference));
  }
  // The same of a score in natural units, but infinite for the first scores of
  // a row, which has no reference yet; 0 for those that are -inf.
  __device__ __forceinline__ float WeightSoFar(float s) const {
    const float reference = max2 == NegativeInfinity() ? -3e38f : max2;
    return arch::Exp2(arch::Fma(s, kLog2E, -reference));
  }

  // `top2`: largest score in base 2; `value2`: largest log2 of p * s_v relative
  // to p's unit, or a bound of it, only where weights are scaled per key.
  template <bool kScaledPerKey>
  __device__ __forceinline__ bool MustRaise(float top2, float value2) const {
    return top2 > max2 + kSlack ||
           (kScaledPerKey && value2 > ref2 + kHeadroom + kSlack);
  }

  // The same from a score's weight p and the weight w of its V row.
  template <bool kScaledPerKey>
  __device__ __forceinline__ static bool PassesSlack(float p, float w) {
    return p > 0x1p6f || (kScaledPerKey && arch::Abs(w) > 0x1p15f);
  }

  // 2^(ref2 - max2); of no meaning until a key was visible.
  __device__ __forceinline__ float InverseGain() const {
    return arch::Exp2(ref2 - max2);
  }

  // Gives the sum of w * v the unit of p: returns the factor for it.
  __device__ __forceinline__ float ToUnitOfP() {
    const float factor = max2 == NegativeInfinity() ? 0.0f : InverseGain();
    ref2 = max2;
    return factor;
  }

  // Raises the references to the row's new maxima, rescales the sum and
  // returns the factor for what was accumulated with the old reference.
  template <bool kScaledPerKey>
  __device__ __forceinline__ float Raise(float top2, float value2) {
    const float new_max2 = arch::Max(max2, top2);
    if (new_max2 == NegativeInfinity()) return 1.0f;
    float new_ref2 = new_max2 - kHeadroom;
    if (kScaledPerKey) {
      new_ref2 =
          arch::Max(arch::Max(ref2, value2 - kHeadroom), new_max2 - kMaxGain);
    }
    if (new_max2 != max2) {
      const float p_factor = arch::Exp2(max2 - new_max2);
      sum = sum * p_factor;
      shift = shift * p_factor;
    }
    const float factor = new_ref2 == ref2 ? 1.0f : arch::Exp2(ref2 - new_ref2);
    max2 = new_max2;
    ref2 = new_ref2;
    gain = arch::Exp2(new_max2 - new_ref2);
    return factor;
  }
};

// The reference of the weights of one block of V's channels, where V has a
// scale per token and block: no reference of a row could keep all blocks'
// weights in range, since scales of blocks may be 2^254 apart.
//
//   w = p * 2^(max2 - ref2) * factor      ref2 of the block
//
// sum(w * v) keeps the block's unit until the end. References are kept in range
// as the row's are, by the weights themselves: a weight past 2^(kHeadroom +
// kSlack), or a gain past 2^kMaxGain, asks for another.
struct BlockReference {
  float ref2;

  __device__ __forceinline__ void Clear() { ref2 = NegativeInfinity(); }

  __device__ __forceinline__ float Gain(const SoftmaxRow& row) const {
    return row.max2 == NegativeInfinity() ? 0.0f : arch::Exp2(row.max2 - ref2);
  }
  // `w`: the largest weight under Gain(). The gain is infinite at the first key
  // that is visible, and p * gain then no number.
  __device__ __forceinline__ bool MustRaise(const SoftmaxRow& row,
                                            float w) const {
    return w > 0x1p15f || ref2 < row.max2 - kMaxGain;
  }
  // `value2`: largest log2 of p * factor, in p's unit. The factor for what was
  // accumulated with the old reference.
  __device__ __forceinline__ float Raise(const SoftmaxRow& row, float value2) {
    if (row.max2 == NegativeInfinity()) return 1.0f;
    const float new_ref2 = arch::Max(
        arch::Max(ref2, row.max2 + value2 - kHeadroom), row.max2 - kMaxGain);
    const float factor = new_ref2 == ref2 ? 1.0f : arch::Exp2(ref2 - new_ref2);
    ref2 = new_ref2;
    return factor;
  }
};

// Gives all blocks of a row the largest of their references, which becomes the
// row's: what is lost of a smaller block is nothing beside the larger one. The
// factors for what was accumulated.
template <int kBlocks>
__device__ __forceinline__ void JoinBlocks(
    const BlockReference (&blocks)[kBlocks], SoftmaxRow& row,
    float (&factors)[kBlocks]) {
  row.ref2 = NegativeInfinity();
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    row.ref2 = arch::Max(row.ref2, blocks[b].ref2);
  }
  const bool seen = row.ref2 != NegativeInfinity();
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    factors[b] = seen ? arch::Exp2(blocks[b].ref2 - row.ref2) : 0.0f;
  }
}

// The p that a narrowed weight w of V stands for: w / (s_v * gain), `inverse`
// being one over that. Below the normal range w says too little of p, and a
// code times w is worth too little to matter.
template <class Operand>
__device__ __forceinline__ float NarrowedP(float p, u32 narrowed,
                                           float inverse) {
  const float w = Operand::ToF32(static_cast<u16>(narrowed));
  return w >= Operand::kMinNormal ? w * inverse : p;
}

// The score in base 2 above which a key is heavy, from the sum over all keys so
// far. -inf before the first.
__device__ __forceinline__ float HeavyScore2(float max2, float sum) {
  return max2 + arch::Log2(sum) - kHeavyOctaves;
}

// What a pair of weights lost when it was narrowed, narrowed in turn.
template <class Operand>
__device__ __forceinline__ u32 NarrowingRest(float lo, float hi, u32 narrowed) {
  float held[2];
  Operand::Unpack(narrowed, held[0], held[1]);
  return Operand::Pack(lo - held[0], hi - held[1]);
}

// What a row's state adds up to, once its sum covers all keys.
struct SoftmaxResult {
  float out_factor;  // turns sum(w * v) into the output
  float lse;         // natural log
};

// `sink2`: the sink's logit in base 2, -inf if there is none. Scores that are
// NaN leave no maximum but a sum that is NaN, and so is the result.
__device__ __forceinline__ SoftmaxResult FinishRow(float max2, float ref2,
                                                   float sum, float sink2) {
  const float top2 = arch::Max(max2, sink2);
  if (top2 == NegativeInfinity()) return {sum, NegativeInfinity() + sum};
  const float total = sum * arch::Exp2(max2 - top2) + arch::Exp2(sink2 - top2);
  // Divides in base 2: the logarithm is wanted besides.
  const float total2 = arch::Log2(total);
  const float factor =
      max2 == NegativeInfinity() ? 0.0f : arch::Exp2(ref2 - top2 - total2);
  return {factor, (top2 + total2) * kLn2};
}

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_SOFTMAX_CUH_
