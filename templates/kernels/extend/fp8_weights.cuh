// From dots to e4m3 weights of V.
//
//   v = log2(p s_v)                  of a key, s_v the scale of its row of V
//   w = 2^(v - top + kTop)           to e4m3; top: the tile's largest v
//   out = out + 2^(top - ref) * sum(w * code)      per tile and row, in f32
//   sum = sum + 2^(top - ref) * sum(w / s_v)       the denominator, unquantized
//
// A tile's weights fill e4m3's range whatever the row's other tiles weigh, and
// however the scales of V spread: a row whose first key takes nearly all weight
// keeps the digits of the others. References are raised only when a tile passes
// them by kRaise octaves: f32 holds the rest.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_FP8_WEIGHTS_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_FP8_WEIGHTS_CUH_

#include "kernels/extend/fp8_ring.cuh"
#include "ops/attention_row.cuh"
#include "ops/visible_keys.cuh"

namespace kvforge::kernels {

struct Fp8Weights {
  using Shape = ExtendShape;
  using Operand = spec::ValueOperand;
  static constexpr int kRows = ExtendState::kRows;
  static constexpr int kTiles = Fp8Ring::kKeys / 8;
  static constexpr int kSteps = Fp8Ring::kKeys / 32;  // of a product
  // Of a product with V: one of all columns would take twice the registers.
  static constexpr int kColumns = spec::kValueDim / 2;
  static constexpr float kTop = 8.0f;  // 2^8 of at most 448
  static constexpr float kRaise = 20.0f;
  static_assert(kRows == 2);
  // Whether the factor of a query row joins log2(s_v) in one operation.
  static constexpr bool kFused = spec::kScoreIsProduct && !ops::kScoreBias;

  u32 codes[kSteps][4];
  float factor[kRows];  // 2^(top - ref)

  // Row terms of four keys: of tiles of eight n, even, and n + 1.
  static __device__ __forceinline__ void LoadTerms(u32 terms, int n, int t,
                                                   float (&x)[4]) {
    const U32x4 words =
        arch::LoadShared<U32x4>(terms + t * TermPlace::kLaneBytes + n * 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = arch::FromBits(words.v[i]);
  }

  // Dots in place to v, without the mask.
  static __device__ __forceinline__ void Map(const AttentionArgs& args,
                                             const ops::Sequence& sequence,
                                             u32 k_terms, u32 v_logs,
                                             int first_key, int t,
                                             const ExtendState& state,
                                             float (&s)[kTiles][4]) {
    ops::ScoreBias::Row bias[kRows];  // kScoreBias only
    float row_factor[kRows];          // kFused only
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      row_factor[i] = state.uniform[i] * ops::kLog2E;
    }
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      int pair_key = first_key;
      if constexpr (ops::kScoreBias) {
        // Not worked out ahead for all keys, nor kept.
        pair_key = Anew(first_key) + 8 * n + 2 * t;
        const int first_row = Anew(state.first_row);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          bias[i] = ops::ScoreBias::Of(args, sequence, first_row + 8 * i);
        }
      }
      float k_scale[4] = {1.0f, 1.0f, 1.0f, 1.0f};
      float v_log2[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      if constexpr (KSide::kRowScale) LoadTerms(k_terms, n, t, k_scale);
      if constexpr (VSide::kRowScale) LoadTerms(v_logs, n, t, v_log2);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int i = j % 4 / 2;
        const int term = j / 4 * 2 + j % 2;
        float& x = s[n + j / 4][j % 4];
        if constexpr (kFused) {
          const float dot = spec::ScoreMap(x, 1.0f, k_scale[term], 0, 0);
          x = arch::Fma(dot, row_factor[i], v_log2[term]);
        } else {
          float score =
              spec::ScoreMap(x, state.uniform[i], k_scale[term], 0, 0);
          if constexpr (ops::kScoreBias) {
            score = bias[i].Apply(score, pair_key + 8 * (j / 4) + j % 2);
          }
          x = arch::Fma(score, ops::kLog2E, v_log2[term]);
        }
      }
    }
  }

  // -inf for keys that a row does not see.
  static __device__ __forceinline__ void Hide(const AttentionArgs& args,
                                              const ops::Sequence& sequence,
                                              int first_key, int t,
                                              const ExtendState& state,
                                              float (&s)[kTiles][4]) {
    int first_row = Anew(state.first_row);
    const ops::CustomMask mask = ops::MaskOf<spec::kCustomMask>(args, sequence);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int step_key = first_key + 32 * step;
      // Beside bits of a mask nothing is kept.
      if constexpr (spec::kCustomMask) first_row = Anew(first_row);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int token = (first_row + 8 * i) / spec::kGroup;
        const ops::KeyRange visible =
            ops::VisibleKeys<spec::kCausal, spec::kWindow>(
                sequence.kv_len, sequence.q_len, token);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          u32 shown = ~0u;
          if constexpr (spec::kCustomMask) {
            shown = mask.Row<16>(token, step_key + 16 * half);
          }
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int bit = j / 2 * 8 + 2 * t + j % 2;
            const int key = step_key + 16 * half + bit;
            if (key < visible.first || key >= visible.end ||
                (spec::kCustomMask && (shown >> bit & 1u) == 0)) {
              s[step * 4 + half * 2 + j / 2][i * 2 + j % 2] =
                  ops::NegativeInfinity();
            }
          }
        }
      }
    }
  }

  // v of a tile to weights; the row's sum and references. What was accumulated
  // gets the unit of a raised reference.
  __device__ __forceinline__ void Weigh(u32 v_inverses, int t,
                                        float (&s)[kTiles][4],
                                        ExtendState& state) {
    float top[kRows] = {ops::NegativeInfinity(), ops::NegativeInfinity()};
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) top[c / 2] = arch::Max(top[c / 2], s[n][c]);
    }
    float offset[kRows];
    float sum[kRows] = {0, 0};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      top[i] = arch::Max(top[i], arch::ShuffleXor(top[i], 1));
      top[i] = arch::Max(top[i], arch::ShuffleXor(top[i], 2));
      offset[i] = top[i] != ops::NegativeInfinity() ? kTop - top[i] : 0.0f;
    }
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      float inverse[4] = {1.0f, 1.0f, 1.0f, 1.0f};
      if constexpr (VSide::kRowScale) LoadTerms(v_inverses, n, t, inverse);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        float w[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          w[j] = arch::Exp2(s[n + j / 2][i * 2 + j % 2] + offset[i]);
          if constexpr (VSide::kRowScale) {
            sum[i] = arch::Fma(w[j], inverse[j], sum[i]);
          } else {
            sum[i] += w[j];
          }
        }
        codes[n / 4][n / 2 % 2 * 2 + i] =
            Operand::Pack4(w[0], w[1], w[2], w[3]);
      }
    }
    // Last, when no score takes a register.
    bool raise = false;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      raise |= top[i] > state.softmax[i].max2 + kRaise;
    }
    if (arch::WarpAny(raise)) Raise(top, state);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      ops::SoftmaxRow& row = state.softmax[i];
      const bool seen = top[i] != ops::NegativeInfinity();
      factor[i] = seen ? arch::Exp2(top[i] - row.max2) : 0.0f;
      row.sum = arch::Fma(sum[i], factor[i], row.sum);
    }
  }

  // The references of the rows that need it to their tops.
  static __device__ __forceinline__ void Raise(const float (&top)[kRows],
                                               ExtendState& state) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      ops::SoftmaxRow& row = state.softmax[i];
      const bool raise = top[i] > row.max2 + kRaise;
      const float rescale = raise ? arch::Exp2(row.max2 - top[i]) : 1.0f;
      row.max2 = raise ? top[i] : row.max2;
      row.sum *= rescale;
#pragma unroll
      for (int n = 0; n < Shape::kNTiles; ++n) {
        state.out[0][n][i * 2] *= rescale;
        state.out[0][n][i * 2 + 1] *= rescale;
      }
    }
  }

  // out += factor * product in one half of the columns: a product's sums keep
  // 14 bits only.
  __device__ __forceinline__ void Promote(
      int half, const float (&product)[kColumns / 8][4],
      ExtendState& state) const {
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float& out = state.out[0][half * (kColumns / 8) + n][c];
        out = arch::Fma(product[n][c], factor[c / 2], out);
      }
    }
  }
};

// Columns 16 k of a product are even channels from 16 k on, columns 16 k + 8
// odd ones: a lane holds four neighbours.
struct Fp8Columns {
  static __device__ __forceinline__ void Store(const AttentionArgs&, int, int t,
                                               int i, float factor,
                                               const ExtendState& state,
                                               u8* out) {
    using Element = spec::OutElement;
    constexpr int kBytes = 4 * Element::kBytes;
#pragma unroll
    for (int n = 0; n < ExtendShape::kNTiles; n += 2) {
      const float(&even)[4] = state.out[0][n];
      const float(&odd)[4] = state.out[0][n + 1];
      u32 words[Element::kBytes];
      Element::FromF32x2(even[2 * i] * factor, odd[2 * i] * factor, words);
      Element::FromF32x2(even[2 * i + 1] * factor, odd[2 * i + 1] * factor,
                         words + Element::kBytes / 2);
      ops::StoreBytes<kBytes>(out + (8 * n + 4 * t) * Element::kBytes, kBytes,
                              words);
    }
  }
};

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_FP8_WEIGHTS_CUH_
