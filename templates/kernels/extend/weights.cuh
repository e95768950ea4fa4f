// From scores to weights of V: scale, bias, mask, online softmax.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_WEIGHTS_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_WEIGHTS_CUH_

#include "kernels/extend/shape.cuh"
#include "kernels/extend/stage.cuh"
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

// Largest scores of rows, as MapScores leaves them, and the largest factor of a
// V row's weight among the thread's keys.
struct StepTops {
  float score[ExtendState::kRows];
  float value;

  __device__ __forceinline__ void Clear() {
    value = 0;
#pragma unroll
    for (int i = 0; i < ExtendState::kRows; ++i) {
      score[i] = ops::NegativeInfinity();
    }
  }
};

// kStepKeys dots in place to scores: scale, softcap, ALiBi or score function.
// In units of state.Unit2. `stage` gives the terms of the step's keys, from its
// tile n0 of 8 keys on.
template <class Stage>
__device__ __forceinline__ void MapScores(
    const AttentionArgs& args, const ops::Sequence& sequence, Stage stage,
    int n0, int step_key, int t, const ExtendState& state,
    float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4]) {
  using Shape = ExtendShape;
  ops::ScoreBias::Row bias[ExtendState::kRows];  // kScoreBias only
  if constexpr (ops::kScoreBias) {
    // Read again for every step: no register holds them during the dots.
    const int first_row = Anew(state.first_row);
#pragma unroll
    for (int i = 0; i < ExtendState::kRows; ++i) {
      bias[i] = ops::ScoreBias::Of(args, sequence, first_row + 8 * i);
    }
  }
#pragma unroll
  for (int n = 0; n < Shape::kStepKeys / 8; n += 2) {
    ops::RowTerms terms[2][2];
    stage.LoadKeyTerms(n0 + n, t, terms);
#pragma unroll
    for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int i = 2 * m + c / 2;
          const ops::RowTerms& key = terms[k][c % 2];
          float score = spec::ScoreMap(
              s[m][n + k][c], Shape::kUniformInUnit ? 1.0f : state.uniform[i],
              key.scale, state.q_sum[i], key.minimum);
          if constexpr (ops::kScoreBias) {
            score =
                bias[i].Apply(score, step_key + 8 * (n + k) + 2 * t + c % 2);
          }
          s[m][n + k][c] = score;
        }
      }
    }
  }
}

// Hides keys that rows do not see. `selected`: bit i for key step_key + i, all
// ones without a selection.
__device__ __forceinline__ void MaskScores(
    const AttentionArgs& args, const ops::Sequence& sequence, int step_key,
    u32 selected, int t, const ExtendState& state,
    float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4]) {
  using Shape = ExtendShape;
  constexpr bool kPicked = Shape::kPicked;
  const int first_row =
      Shape::kFeatures ? Anew(state.first_row) : state.first_row;
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    u32 shown = selected;  // kPicked only
    if constexpr (spec::kCustomMask) {
      const ops::CustomMask mask = ops::MaskOf<true>(args, sequence);
      shown &= mask.Row<Shape::kStepKeys>((first_row + 8 * i) / spec::kGroup,
                                          step_key);
    }
    const ops::KeyRange visible =
        ops::VisibleKeys<spec::kCausal, spec::kWindow>(
            sequence.kv_len, sequence.q_len,
            (first_row + 8 * i) / spec::kGroup);
#pragma unroll
    for (int n = 0; n < Shape::kStepKeys / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int bit = 8 * n + 2 * t + j;
        const int key = step_key + bit;
        if (key < visible.first || key >= visible.end ||
            (kPicked && (shown >> bit & 1u) == 0)) {
          s[i / 2][n][i % 2 * 2 + j] = ops::NegativeInfinity();
        }
      }
    }
  }
}

__device__ __forceinline__ void FindTops(
    const float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4],
    StepTops& tops) {
#pragma unroll
  for (int n = 0; n < ExtendShape::kStepKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < ExtendState::kRows; ++i) {
      const float(&row)[4] = s[i / 2][n];
      tops.score[i] = arch::Max(tops.score[i],
                                arch::Max(row[i % 2 * 2], row[i % 2 * 2 + 1]));
    }
  }
}

// Raises the references of rows to what their scores and weights need.
// `v_terms(n, terms)` gives the terms of keys 8 n + 2 t and 8 (n + 1) + 2 t and
// the ones behind them.
// factor[i]: for what row i has accumulated.
template <int kTiles, class ValueTerms>
__device__ __forceinline__ void RaiseReferences(
    const float (&s)[ExtendShape::kMTiles][kTiles][4], ValueTerms v_terms,
    float (&top2)[ExtendState::kRows], ExtendState& state,
    float (&factor)[ExtendState::kRows]) {
  constexpr bool kScaled = spec::kValueWeightScaled;
  float value2[ExtendState::kRows];
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    value2[i] = ops::NegativeInfinity();
  }
  if constexpr (kScaled) {
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      ops::RowTerms terms[2][2];
      v_terms(n, terms);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float v_log2 = arch::Log2(
            arch::Abs(spec::ValueWeight(1.0f, terms[j / 2][j % 2].scale)));
#pragma unroll
        for (int i = 0; i < ExtendState::kRows; ++i) {
          value2[i] = arch::Max(
              value2[i],
              s[i / 2][n + j / 2][i % 2 * 2 + j % 2] * state.Unit2(i) + v_log2);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
#pragma unroll
    for (int mask = 1; mask < 4; mask *= 2) {
      top2[i] = arch::Max(top2[i], arch::ShuffleXor(top2[i], mask));
      if constexpr (kScaled) {
        value2[i] = arch::Max(value2[i], arch::ShuffleXor(value2[i], mask));
      }
    }
    factor[i] = state.softmax[i].Raise<kScaled>(top2[i], value2[i]);
  }
}

// Raises references that scores `s` pass, or all if `always`, and hands the
// factors for what was accumulated to `rescale`. Whether some key is heavy for
// a row of the warp (kTwoPartWeights only).
template <int kTiles, class ValueTerms, class Rescale>
__device__ __forceinline__ bool Raise(
    const StepTops& tops, const float (&s)[ExtendShape::kMTiles][kTiles][4],
    ValueTerms v_terms, bool always, ExtendState& state, Rescale rescale) {
  using Shape = ExtendShape;
  constexpr bool kScaled = spec::kValueWeightScaled;
  bool raise = always;
  bool heavy = false;
  // No weight is larger than the largest p with the largest factor.
  const float value2 = kScaled ? arch::Log2(tops.value) : 0.0f;
  float top2[ExtendState::kRows];
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    top2[i] = tops.score[i] * state.Unit2(i);
    raise |= state.softmax[i].MustRaise<kScaled>(top2[i], top2[i] + value2);
    if constexpr (Shape::kTwoPartWeights) heavy |= top2[i] > state.heavy2[i];
  }
  if (arch::WarpAny(raise || heavy)) {
    if (!Shape::kTwoPartWeights || arch::WarpAny(raise)) {
      float factor[ExtendState::kRows];
      RaiseReferences(s, v_terms, top2, state, factor);
      rescale(factor);
    }
    if constexpr (Shape::kTwoPartWeights) heavy = arch::WarpAny(heavy);
  }
  return heavy;
}

// Multiplies what rows have accumulated.
__device__ __forceinline__ void ScaleOutput(
    const float (&factor)[ExtendState::kRows], ExtendState& state) {
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
#pragma unroll
    for (int n = 0; n < ExtendShape::kNTiles; ++n) {
      state.out[i / 2][n][i % 2 * 2] *= factor[i];
      state.out[i / 2][n][i % 2 * 2 + 1] *= factor[i];
    }
  }
}

// Scores in place to weights of V, by the references as they are.
__device__ __forceinline__ void WeighScores(
    const ops::RowTerms (&v_terms)[ExtendShape::kStepKeys / 16][2][2],
    float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4],
    ExtendState& state) {
  using Shape = ExtendShape;
  constexpr int kTiles = Shape::kStepKeys / 8;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const ops::RowTerms(&terms)[2] = v_terms[n / 2][n % 2];
#pragma unroll
    for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ops::SoftmaxRow& row = state.softmax[2 * m + half];
        float p[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = s[m][n][2 * half + j];
          p[j] = row.Weight(score, state.Unit2(2 * m + half));
          score = Shape::kWeightBlocks
                      ? p[j]
                      : spec::ValueWeight(p[j], terms[j].scale) * row.gain;
        }
        row.sum += p[0] + p[1];
        if constexpr (VSide::kRowMinimum) {
          AddMinima(p, {s[m][n][2 * half], s[m][n][2 * half + 1]}, terms, row);
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
__device__ __forceinline__ bool Weights(
    const AttentionArgs& args, const ops::Sequence& sequence, ExtendStage stage,
    int group0, int step_key, bool masked, u32 selected, int t,
    float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4],
    ExtendState& state) {
  constexpr int kTiles = ExtendShape::kStepKeys / 8;
  ops::RowTerms v_terms[kTiles / 2][2][2];
  StepTops tops;
  tops.Clear();
#pragma unroll
  for (int n = 0; n < kTiles; n += 2) {
    stage.LoadValueTerms(2 * group0 + n, t, v_terms[n / 2]);
    if constexpr (spec::kValueWeightScaled) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        tops.value = arch::Max(tops.value,
                               arch::Abs(spec::ValueWeight(
                                   1.0f, v_terms[n / 2][j / 2][j % 2].scale)));
      }
    }
  }
  MapScores(args, sequence, stage, 2 * group0, step_key, t, state, s);
  if (masked) MaskScores(args, sequence, step_key, selected, t, state, s);
  FindTops(s, tops);
  const bool heavy = Raise(
      tops, s,
      [&](int n, ops::RowTerms(&terms)[2][2]) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          terms[j / 2][j % 2] = v_terms[n / 2][j / 2][j % 2];
        }
      },
      /*always=*/false, state,
      [&](const float(&factor)[ExtendState::kRows]) {
        if constexpr (!ExtendShape::kWeightBlocks) ScaleOutput(factor, state);
      });
  WeighScores(v_terms, s, state);
  NoteHeavy(heavy, state);
  return heavy;
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_WEIGHTS_CUH_
