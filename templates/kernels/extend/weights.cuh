// From scores to weights of V: scale, bias, mask, online softmax.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_WEIGHTS_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_WEIGHTS_CUH_

#include "kernels/extend/shape.cuh"
#include "ops/attention_row.cuh"
#include "ops/key_selection.cuh"
#include "ops/visible_keys.cuh"

namespace kvforge::kernels {

// Adds p * minimum of two keys to a row's sum; w are their weights of V.
__device__ __forceinline__ void AddMinima(const float (&p)[2],
                                          const float (&w)[2],
                                          const ops::RowTerms (&terms)[2],
                                          ops::SoftmaxRow& row) {
  const u32 narrowed = spec::ValueOperand::Pack(w[0], w[1]);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float inverse =
        1.0f / spec::ValueWeight(1.0f, terms[j].scale) * row.InverseGain();
    const float stands_for =
        ops::NarrowedP<spec::ValueOperand>(p[j], narrowed >> (16 * j), inverse);
    row.shift = arch::Fma(stands_for, terms[j].minimum, row.shift);
  }
}

// Raises the references of rows to what their scores and weights need.
__device__ __forceinline__ void RaiseReferences(
    float (&top2)[ExtendState::kRows], float (&value2)[ExtendState::kRows],
    ExtendState& state) {
  using Shape = ExtendShape;
  constexpr bool kScaled = spec::kValueWeightScaled;
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
#pragma unroll
    for (int mask = 1; mask < 4; mask *= 2) {
      top2[i] = arch::Max(top2[i], arch::ShuffleXor(top2[i], mask));
      if constexpr (kScaled) {
        value2[i] = arch::Max(value2[i], arch::ShuffleXor(value2[i], mask));
      }
    }
    const float factor = state.softmax[i].Raise<kScaled>(top2[i], value2[i]);
    if constexpr (!Shape::kWeightBlocks) {
#pragma unroll
      for (int n = 0; n < Shape::kNTiles; ++n) {
        state.out[i / 2][n][i % 2 * 2] *= factor;
        state.out[i / 2][n][i % 2 * 2 + 1] *= factor;
      }
    }
  }
}

// Largest scores of rows in base 2, and of their weights of V; see
// ops::SoftmaxRow::MustRaise.
struct StepTops {
  float score2[ExtendState::kRows];
  float value2[ExtendState::kRows];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < ExtendState::kRows; ++i) {
      score2[i] = value2[i] = ops::NegativeInfinity();
    }
  }
};

// kStepKeys dots in place to scores: scale, softcap, ALiBi or score function,
// mask. `selected`: bit i for key step_key + i, all ones without a selection.
// `stage`: where the keys' row terms lie, as ExtendStage gives them.
template <class Stage>
__device__ __forceinline__ void MapScores(
    const AttentionArgs& args, const ops::Sequence& sequence, Stage stage,
    int group0, int step_key, bool masked, u32 selected, int t,
    const ExtendState& state,
    float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4],
    ops::RowTerms (&v_terms)[ExtendShape::kStepKeys / 8][2], StepTops& tops) {
  using Shape = ExtendShape;
  constexpr int kTiles = Shape::kStepKeys / 8;
  constexpr bool kScaled = spec::kValueWeightScaled;
  constexpr bool kPicked = Shape::kPicked;

  // Read again for every step: no register holds them during the dots.
  const int first_row =
      Shape::kFeatures ? Anew(state.first_row) : state.first_row;
  ops::ScoreBias::Row bias[ExtendState::kRows];  // kScoreBias only
  u32 shown[ExtendState::kRows];                 // kPicked only
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    if constexpr (ops::kScoreBias) {
      bias[i] = ops::ScoreBias::Of(args, sequence, first_row + 8 * i);
    }
    if constexpr (kPicked) shown[i] = selected;
    if constexpr (spec::kCustomMask) {
      const ops::CustomMask mask = ops::MaskOf<true>(args, sequence);
      shown[i] &= mask.Row<Shape::kStepKeys>((first_row + 8 * i) / spec::kGroup,
                                             step_key);
    }
  }

#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const ops::GroupPlace k_group = stage.Keys(group0 + n / 2);
    const ops::GroupPlace v_group = stage.Values(group0 + n / 2);
    const int pair = n % 2 * 8 + 2 * t;
    ops::RowTerms k_terms[2];
    float v_log2[2] = {0.0f, 0.0f};
    ops::LoadRowTermsPair<KSide, spec::kHeadDim>(k_group, pair, k_terms);
    ops::LoadRowTermsPair<VSide, spec::kValueDim>(v_group, pair, v_terms[n]);
    if constexpr (kScaled) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        v_log2[j] =
            arch::Log2(arch::Abs(spec::ValueWeight(1.0f, v_terms[n][j].scale)));
      }
    }
#pragma unroll
    for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int i = 2 * m + c / 2;
        float score =
            spec::ScoreMap(s[m][n][c], state.uniform[i], k_terms[c % 2].scale,
                           state.q_sum[i], k_terms[c % 2].minimum);
        if constexpr (ops::kScoreBias) {
          score = bias[i].Apply(score, step_key + 8 * n + 2 * t + c % 2);
        }
        s[m][n][c] = score;
      }
    }
    if (masked) {
#pragma unroll
      for (int i = 0; i < ExtendState::kRows; ++i) {
        const ops::KeyRange visible =
            ops::VisibleKeys<spec::kCausal, spec::kWindow>(
                sequence.kv_len, sequence.q_len,
                (first_row + 8 * i) / spec::kGroup);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int bit = 8 * n + 2 * t + j;
          const int key = step_key + bit;
          if (key < visible.first || key >= visible.end ||
              (kPicked && (shown[i] >> bit & 1u) == 0)) {
            s[i / 2][n][i % 2 * 2 + j] = ops::NegativeInfinity();
          }
        }
      }
    }
#pragma unroll
    for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int i = 2 * m + c / 2;
        const float score2 = s[m][n][c] * ops::kLog2E;
        tops.score2[i] = arch::Max(tops.score2[i], score2);
        if constexpr (kScaled) {
          tops.value2[i] = arch::Max(tops.value2[i], score2 + v_log2[c % 2]);
        }
      }
    }
  }
}

// Raises references that `tops` passes. Whether some key is heavy for a row of
// the warp (kTwoPartWeights only).
__device__ __forceinline__ bool Raise(StepTops& tops, ExtendState& state) {
  using Shape = ExtendShape;
  constexpr bool kScaled = spec::kValueWeightScaled;
  bool raise = false;
  bool heavy = false;
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    raise |=
        state.softmax[i].MustRaise<kScaled>(tops.score2[i], tops.value2[i]);
    if constexpr (Shape::kTwoPartWeights)
      heavy |= tops.score2[i] > state.heavy2[i];
  }
  if (arch::WarpAny(raise || heavy)) {
    if (!Shape::kTwoPartWeights || arch::WarpAny(raise)) {
      RaiseReferences(tops.score2, tops.value2, state);
    }
    if constexpr (Shape::kTwoPartWeights) heavy = arch::WarpAny(heavy);
  }
  return heavy;
}

// Scores in place to weights of V, by the references as they are.
__device__ __forceinline__ void WeighScores(
    const ops::RowTerms (&v_terms)[ExtendShape::kStepKeys / 8][2],
    float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4],
    ExtendState& state) {
  using Shape = ExtendShape;
  constexpr int kTiles = Shape::kStepKeys / 8;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ops::SoftmaxRow& row = state.softmax[2 * m + half];
        float p[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = s[m][n][2 * half + j];
          p[j] = row.Weight(score);
          row.sum += p[j];
          score = Shape::kWeightBlocks
                      ? p[j]
                      : spec::ValueWeight(p[j], v_terms[n][j].scale) * row.gain;
        }
        if constexpr (VSide::kRowMinimum) {
          AddMinima(p, {s[m][n][2 * half], s[m][n][2 * half + 1]}, v_terms[n],
                    row);
        }
      }
    }
  }
}

// Of all keys so far, behind a heavy one.
__device__ __forceinline__ void NoteHeavy(bool heavy, ExtendState& state) {
  using Shape = ExtendShape;
  if constexpr (Shape::kTwoPartWeights) {
    if (heavy) {
#pragma unroll
      for (int i = 0; i < ExtendState::kRows; ++i) {
        float sum = state.softmax[i].sum;
        sum += arch::ShuffleXor(sum, 1);
        sum += arch::ShuffleXor(sum, 2);
        state.heavy2[i] = ops::HeavyScore2(state.softmax[i].max2, sum);
      }
    }
  }
}

// A step's dots to weights of V in place. Returns whether some key is heavy.
template <class Stage>
__device__ __forceinline__ bool Weights(
    const AttentionArgs& args, const ops::Sequence& sequence, Stage stage,
    int group0, int step_key, bool masked, u32 selected, int t,
    float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4],
    ExtendState& state) {
  ops::RowTerms v_terms[ExtendShape::kStepKeys / 8][2];
  StepTops tops;
  tops.Clear();
  MapScores(args, sequence, stage, group0, step_key, masked, selected, t, state,
            s, v_terms, tops);
  const bool heavy = Raise(tops, state);
  WeighScores(v_terms, s, state);
  NoteHeavy(heavy, state);
  return heavy;
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_WEIGHTS_CUH_
