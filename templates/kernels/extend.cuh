// extend: dequant-on-dot attention of many query tokens a sequence over a paged
// cache: prefill, chunked prefill and prefix reuse, ragged batches.
//
//   grid   (ceil(total_q * kGroup / kBlockM) + batch) * num_kv_heads; block
//          index = tile * num_kv_heads + kv_head. Which sequence a tile is of
//          follows from q_indptr, on the device; blocks left over return.
//   block  kBlockM query rows (token, head of the group) of one kv head
//
// Warps stand in kRowWarps x kDimSplit: a warp holds kWarpRows rows of S and
// kValueDim / kDimSplit channels of their output. Where kDimSplit > 1 (an
// output row would not fit a warp's registers) S is computed once a part.
//
// Shared memory: q as A operands in fragment order, then kStages stages of
// kBlockN keys of K and V as codes, copied asynchronously.
#include "ops/attention_row.cuh"
#include "ops/custom_mask.cuh"
#include "ops/fragments.cuh"
#include "ops/key_selection.cuh"
#include "ops/key_tile.cuh"
#include "ops/query_row.cuh"
#include "ops/score_bias.cuh"
#include "ops/softmax.cuh"
#include "ops/visible_keys.cuh"

namespace kvforge::kernels {

using spec::KSide;
using spec::VSide;

struct ExtendShape {
  using KGroup = ops::KeyGroup<KSide, spec::kHeadDim>;
  using VGroup = ops::KeyGroup<VSide, spec::kValueDim>;
  using KOrder = ops::ChannelOrder<KSide, spec::kHeadDim>;
  using VOrder = ops::ValueOrder<VSide, spec::kValueDim>;
  static constexpr bool kDotBlocks = ops::kBlockFactors<KSide>;
  static constexpr bool kWeightBlocks = ops::kBlockFactors<VSide>;

  static constexpr int kThreads = spec::kWarps * 32;
  static constexpr int kDimSplit = (spec::kValueDim + 255) / 256;
  static constexpr int kRowWarps = spec::kWarps / kDimSplit;
  static constexpr int kWarpRows = spec::kBlockM / kRowWarps;
  static constexpr int kMTiles = kWarpRows / 16;
  static constexpr int kRuns = VOrder::kRuns / kDimSplit;  // V runs of a warp
  static constexpr int kNTiles = kRuns * VOrder::kLaneChannels;
  static constexpr int kQueryParts =
      ops::kQueryParts<spec::QueryElement, spec::ScoreOperand,
                       KSide::kChannelScale>;
  // Whether what heavy weights lose when they are narrowed goes into a second
  // product, see ops/softmax.cuh.
  static constexpr bool kTwoPartWeights =
      formats::kSameElement<spec::ValueOperand, formats::Bf16Operand>;
  static_assert(!kTwoPartWeights ||
                (!spec::kValueWeightScaled && !kWeightBlocks));
  // Keys are seen one by one, not only as a range.
  static constexpr bool kPicked = spec::kCustomMask || spec::kSparseBlock > 0;
  // Keys whose scores a warp holds at once: fewer where the output and the
  // query take most of the registers, the sooner if features take some.
  static constexpr bool kFeatures = kPicked || ops::kScoreBias;
  static constexpr int kStepKeys =
      spec::kBlockN % 32 == 0 &&
              (kMTiles == 1 ? !kFeatures || kNTiles <= 16 : kNTiles <= 12) &&
              (kQueryParts == 1 || kNTiles < 32)
          ? 32
          : 16;

  // Whether addresses of copies, kept from tile to tile, would not fit the
  // registers: beside a full output and the terms of a format, or features.
  static constexpr bool kShort =
      kFeatures ||
      (kMTiles * kNTiles >= 32 &&
       (KSide::kRowMinimum || VSide::kRowMinimum || KSide::kBlock > 0 ||
        VSide::kBlock > 0 || spec::kHeadDim < spec::kValueDim));

  static constexpr int kQueryBytes =
      kQueryParts * spec::kBlockM * spec::kHeadDim * 2;
  static constexpr int kGroups = spec::kBlockN / ops::kGroupKeys;
  static constexpr int kStageBytes =
      kGroups * (KGroup::kBytes + VGroup::kBytes);
  static constexpr int kSharedBytes = kQueryBytes + spec::kStages * kStageBytes;

  static_assert(spec::kWarps % kDimSplit == 0);
  static_assert(kWarpRows == 16 || kWarpRows == 32);
  static_assert(VOrder::kRuns % kDimSplit == 0);
  static_assert(spec::kBlockN % ops::kGroupKeys == 0);
};

// A stage's groups of K, then those of V.
__device__ __forceinline__ ops::GroupPlace KeysAt(u32 stage, int group) {
  using Group = ExtendShape::KGroup;
  return ops::PlaceAt<Group>(stage + group * Group::kBytes);
}
__device__ __forceinline__ ops::GroupPlace ValuesAt(u32 stage, int group) {
  using Group = ExtendShape::VGroup;
  return ops::PlaceAt<Group>(
      stage + ExtendShape::kGroups * ExtendShape::KGroup::kBytes +
      group * Group::kBytes);
}

// This thread holds rows first_row + 8 * i, i = 0 .. kRows - 1, of its
// sequence. Which keys a row sees is worked out again where a mask is needed:
// few tiles need one, and registers are short.
struct ExtendState {
  using Shape = ExtendShape;
  static constexpr int kRows = 2 * Shape::kMTiles;
  int first_row;
  float uniform[kRows];
  float q_sum[kRows];  // of the row's channels
  ops::SoftmaxRow softmax[kRows];
  float heavy2[kRows];  // kTwoPartWeights only; see ops::HeavyScore2
  static constexpr int kBlocks = Shape::kWeightBlocks ? Shape::kRuns : 1;
  ops::BlockReference blocks[kRows][kBlocks];
  float out[Shape::kMTiles][Shape::kNTiles][4];
};

// `x` again: a shuffle stays in its place, and what follows from its result is
// not worked out ahead of it and kept. All lanes.
__device__ __forceinline__ int Anew(int x) { return arch::ShuffleXor(x, 0); }

// Shared address of the A operand of (part, 16 rows, step) for this lane.
__device__ __forceinline__ u32 QueryFragment(u32 shared, int part, int m_tile,
                                             int step, int lane) {
  const int tile = part * (spec::kBlockM / 16) + m_tile;
  return shared +
         ((tile * ExtendShape::KOrder::kSteps + step) * 32 + lane) * 16;
}

// Writes the block's rows as operands and reads this thread's row facts.
__device__ __forceinline__ void LoadQueries(const AttentionArgs& args,
                                            const ops::Sequence& sequence,
                                            int row0, int warp, int lane,
                                            u32 shared, ExtendState& state) {
  using Shape = ExtendShape;
  const int g = lane / 4;
  const int t = lane % 4;
  const int row_warp = warp % Shape::kRowWarps;
  const float uniform = spec::ScoreUniform(args, sequence.kv_head);
  state.first_row = row0 + row_warp * Shape::kWarpRows + g;
  // One body for all rows: it is long, and runs once.
#pragma unroll 1
  for (int i = 0; i < ExtendState::kRows; ++i) {
    const int block_row = row_warp * Shape::kWarpRows + 8 * i + g;
    const ops::QueryRow<KSide::kChannelScale> query = {
        ops::QueryOf<spec::kGroup>(args, sequence, row0 + block_row),
        KSide::kChannelScale ? formats::GivenChannelScales<spec::kHeadDim>(
                                   args.k, sequence.kv_head)
                             : nullptr};
    ops::PowerOfTwo scale = {1.0f, 1.0f};
    if constexpr (spec::kScaleQueryRows) {
      scale = ops::Normalizer(
          ops::QueryAmax<spec::QueryElement, Shape::KOrder>(query, t));
    }
    if (warp < Shape::kRowWarps) {
      const int m_tile = block_row / 16;
#pragma unroll 4
      for (int step = 0; step < Shape::KOrder::kSteps; ++step) {
        u32 words[Shape::kQueryParts][2];
        ops::QueryStep<spec::QueryElement, spec::ScoreOperand, Shape::KOrder>(
            query, step, t, scale.factor, words);
        // Registers of an A operand: (row g, k), (row g + 8, k), (row g, k +
        // 8), (row g + 8, k + 8).
#pragma unroll
        for (int part = 0; part < Shape::kQueryParts; ++part) {
          const u32 to =
              QueryFragment(shared, part, m_tile, step, lane) + i % 2 * 4;
          arch::StoreShared(to, words[part][0]);
          arch::StoreShared(to + 8, words[part][1]);
        }
      }
    }
    float q_sum = 0;
    if constexpr (KSide::kRowMinimum) {
      q_sum = ops::QuerySum<spec::QueryElement, Shape::KOrder>(query, t,
                                                               scale.factor);
    }
#pragma unroll
    for (int j = 0; j < ExtendState::kRows; ++j) {
      if (j != i) continue;  // registers have no index
      state.uniform[j] = uniform * scale.inverse;
      state.q_sum[j] = q_sum;
    }
  }
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    state.softmax[i].Clear();
    if constexpr (Shape::kTwoPartWeights) {
      state.heavy2[i] = ops::NegativeInfinity();
    }
    for (ops::BlockReference& block : state.blocks[i]) block.Clear();
  }
#pragma unroll
  for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::kNTiles; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) state.out[m][n][c] = 0;
    }
  }
}

__device__ __forceinline__ void ClearScores(
    float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4]) {
#pragma unroll
  for (int m = 0; m < ExtendShape::kMTiles; ++m) {
#pragma unroll
    for (int n = 0; n < ExtendShape::kStepKeys / 8; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) s[m][n][c] = 0;
    }
  }
}

// S of the warp's rows and kStepKeys keys that start at group `group0` of the
// stage, s[m][n] being rows g, g + 8 and keys 8 * n + 2t, + 1: the partial dots
// of each block of channels times the block's factor.
__device__ __forceinline__ void BlockDots(
    u32 shared, u32 stage, int group0, int row_warp, int lane,
    float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4]) {
  using Shape = ExtendShape;
  using KeyRun = ops::KeyRun<KSide, spec::kHeadDim>;
  const int g = lane / 4;
  const int t = lane % 4;
  ClearScores(s);
  // Addresses of more runs than these would not fit the registers.
  constexpr int kRuns = Shape::KOrder::kRuns;
  constexpr int kUnroll = kRuns > 8 || kRuns % 4 == 0 ? 4 : kRuns;
#pragma unroll kUnroll
  for (int run = 0; run < Shape::KOrder::kRuns; ++run) {
    u32 q[KeyRun::kSteps][Shape::kQueryParts][Shape::kMTiles][4];
#pragma unroll
    for (int i = 0; i < KeyRun::kSteps; ++i) {
#pragma unroll
      for (int p = 0; p < Shape::kQueryParts; ++p) {
#pragma unroll
        for (int m = 0; m < Shape::kMTiles; ++m) {
          ops::LoadSharedBytes<16>(
              QueryFragment(shared, p, row_warp * Shape::kMTiles + m,
                            run * KeyRun::kSteps + i, lane),
              q[i][p][m]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < Shape::kStepKeys / 8; ++n) {
      const ops::GroupPlace group = KeysAt(stage, group0 + n / 2);
      const int first_key = n % 2 * 8;
      KeyRun keys;
      keys.Load(group, first_key + g, run, 0, t);
      float partial[Shape::kMTiles][4] = {};
#pragma unroll
      for (int i = 0; i < KeyRun::kSteps; ++i) {
        u32 k[2];
        keys.Decode(i, k);
#pragma unroll
        for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
          for (int p = 0; p < Shape::kQueryParts; ++p) {
            spec::ScoreOperand::Mma(partial[m], q[i][p][m], k);
          }
        }
      }
      float factor[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        factor[j] = ops::LoadBlockFactor<KSide, spec::kHeadDim>(
            group, first_key + 2 * t + j, run);
      }
#pragma unroll
      for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          s[m][n][c] = arch::Fma(partial[m][c], factor[c % 2], s[m][n][c]);
        }
      }
    }
  }
}

// The same where K has no block factors.
__device__ __forceinline__ void Dots(
    u32 shared, u32 stage, int group0, int row_warp, int lane,
    float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4]) {
  using Shape = ExtendShape;
  constexpr int kTiles = Shape::kStepKeys / 8;
  const int g = lane / 4;
  const int t = lane % 4;
  ClearScores(s);
#pragma unroll
  for (int run = 0; run < Shape::KOrder::kRuns; ++run) {
    using KeyRun = ops::KeyRun<KSide, spec::kHeadDim>;
#pragma unroll
    for (int part = 0; part < KeyRun::kParts; ++part) {
      KeyRun keys[kTiles];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        keys[n].Load(KeysAt(stage, group0 + n / 2), n % 2 * 8 + g, run, part,
                     t);
      }
#pragma unroll
      for (int i = 0; i < KeyRun::kSteps; ++i) {
        const int step =
            run * Shape::KOrder::kStepsPerRun + part * KeyRun::kSteps + i;
        u32 q[Shape::kQueryParts][Shape::kMTiles][4];
#pragma unroll
        for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
          for (int p = 0; p < Shape::kQueryParts; ++p) {
            ops::LoadSharedBytes<16>(
                QueryFragment(shared, p, row_warp * Shape::kMTiles + m, step,
                              lane),
                q[p][m]);
          }
        }
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          u32 k[2];
          keys[n].Decode(i, k);
#pragma unroll
          for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
            for (int p = 0; p < Shape::kQueryParts; ++p) {
              spec::ScoreOperand::Mma(s[m][n], q[p][m], k);
            }
          }
        }
      }
    }
  }
}

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

// Scores to weights of V in place of s: scale, softcap, ALiBi or score
// function, mask, online softmax. `selected`: bit i for key step_key + i, all
// ones without a selection. Returns whether some key is heavy for a row of the
// warp (kTwoPartWeights only).
__device__ __forceinline__ bool Weights(
    const AttentionArgs& args, const ops::Sequence& sequence, u32 stage,
    int group0, int step_key, bool masked, u32 selected, int t,
    float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4],
    ExtendState& state) {
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

  ops::RowTerms v_terms[kTiles][2];
  float top2[ExtendState::kRows], value2[ExtendState::kRows];
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    top2[i] = value2[i] = ops::NegativeInfinity();
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const ops::GroupPlace k_group = KeysAt(stage, group0 + n / 2);
    const ops::GroupPlace v_group = ValuesAt(stage, group0 + n / 2);
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
        top2[i] = arch::Max(top2[i], score2);
        if constexpr (kScaled) {
          value2[i] = arch::Max(value2[i], score2 + v_log2[c % 2]);
        }
      }
    }
  }

  bool raise = false;
  bool heavy = false;
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    raise |= state.softmax[i].MustRaise<kScaled>(top2[i], value2[i]);
    if constexpr (Shape::kTwoPartWeights) heavy |= top2[i] > state.heavy2[i];
  }
  if (arch::WarpAny(raise || heavy)) {
    if (!Shape::kTwoPartWeights || arch::WarpAny(raise)) {
      RaiseReferences(top2, value2, state);
    }
    if constexpr (Shape::kTwoPartWeights) heavy = arch::WarpAny(heavy);
  }

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
  return heavy;
}

// The operand of weights of block `run` of the warp's channels from p of the 16
// keys of `v_group`, which `p` holds as S does: tiles of 8 keys `half` 0 and 1.
__device__ __forceinline__ void BlockWeights(
    const float (&p)[ExtendShape::kMTiles][2][4], ops::GroupPlace v_group,
    int dim_part, int run, int t, ExtendState& state,
    u32 (&weights)[ExtendShape::kMTiles][4]) {
  using Shape = ExtendShape;
  float factor[2][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      factor[half][j] = ops::LoadBlockFactor<VSide, spec::kValueDim>(
          v_group, 8 * half + 2 * t + j, dim_part * Shape::kRuns + run);
    }
  }
  const auto weigh = [&] {
    bool raise = false;
#pragma unroll
    for (int i = 0; i < ExtendState::kRows; ++i) {
      const ops::SoftmaxRow& row = state.softmax[i];
      const ops::BlockReference& block = state.blocks[i][run];
      const float gain = block.Gain(row);
      float largest = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float w[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          w[j] = p[i / 2][half][i % 2 * 2 + j] * gain * factor[half][j];
          largest = arch::Max(largest, w[j]);
        }
        weights[i / 2][2 * half + i % 2] = spec::ValueOperand::Pack(w[0], w[1]);
      }
      raise |= block.MustRaise(row, largest);
    }
    return raise;
  };
  if (!arch::WarpAny(weigh())) return;
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    float value2 = ops::NegativeInfinity();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        value2 = arch::Max(value2, arch::Log2(p[i / 2][half][i % 2 * 2 + j]) +
                                       arch::Log2(factor[half][j]));
      }
    }
    value2 = arch::Max(value2, arch::ShuffleXor(value2, 1));
    value2 = arch::Max(value2, arch::ShuffleXor(value2, 2));
    const float rescale = state.blocks[i][run].Raise(state.softmax[i], value2);
#pragma unroll
    for (int n = run * Shape::VOrder::kLaneChannels;
         n < (run + 1) * Shape::VOrder::kLaneChannels; ++n) {
      state.out[i / 2][n][i % 2 * 2] *= rescale;
      state.out[i / 2][n][i % 2 * 2 + 1] *= rescale;
    }
  }
  weigh();
}

// out += weights * V over the warp's channels; where a key is `heavy`, once
// more with what the weights lost when they were narrowed.
__device__ __forceinline__ void Accumulate(
    u32 stage, int group0, int dim_part, int lane, bool heavy,
    const float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4],
    ExtendState& state) {
  using Shape = ExtendShape;
  const int parts = Shape::kTwoPartWeights && heavy ? 2 : 1;
#pragma unroll
  for (int group = 0; group < Shape::kStepKeys / 16; ++group) {
    u32 weights[Shape::kMTiles][4];
    u32 rest[Shape::kMTiles][4];    // of heavy weights
    float p[Shape::kMTiles][2][4];  // where weights differ by block
#pragma unroll
    for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float(&w)[4] = s[m][2 * group + half];
#pragma unroll
        for (int c = 0; c < 4; ++c) p[m][half][c] = w[c];
        if constexpr (!Shape::kWeightBlocks) {
          weights[m][2 * half] = spec::ValueOperand::Pack(w[0], w[1]);
          weights[m][2 * half + 1] = spec::ValueOperand::Pack(w[2], w[3]);
        }
      }
    }
    if constexpr (Shape::kTwoPartWeights) {
      if (heavy) {
#pragma unroll
        for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float(&w)[4] = s[m][2 * group + i / 2];
            rest[m][i] = ops::NarrowingRest<spec::ValueOperand>(
                w[i % 2 * 2], w[i % 2 * 2 + 1], weights[m][i]);
          }
        }
      }
    }
    const ops::GroupPlace v_group = ValuesAt(stage, group0 + group);
#pragma unroll 1
    for (int part = 0;; ++part) {
#pragma unroll
      for (int run = 0; run < Shape::kRuns; ++run) {
        ops::ValueRun<VSide, spec::kValueDim> values;
        values.Load(v_group, dim_part * Shape::kRuns + run, lane / 4, lane % 4);
        if constexpr (Shape::kWeightBlocks) {
          BlockWeights(p, v_group, dim_part, run, lane % 4, state, weights);
        }
#pragma unroll
        for (int pair = 0; pair < Shape::VOrder::kLaneChannels / 2; ++pair) {
          u32 v[2][2];
          values.Decode(pair, v);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int n = run * Shape::VOrder::kLaneChannels + 2 * pair + i;
#pragma unroll
            for (int m = 0; m < Shape::kMTiles; ++m) {
              spec::ValueOperand::Mma(state.out[m][n], weights[m], v[i]);
            }
          }
        }
      }
      if (part + 1 == parts) break;
#pragma unroll
      for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) weights[m][i] = rest[m][i];
      }
    }
  }
}

// Normalises the warp's rows and writes them.
__device__ __forceinline__ void WriteRows(const AttentionArgs& args,
                                          const ops::Sequence& sequence,
                                          int warp, int lane,
                                          ExtendState& state) {
  using Shape = ExtendShape;
  using Element = spec::OutElement;
  constexpr int kLaneChannels = Shape::VOrder::kLaneChannels;
  constexpr int kLaneBytes = kLaneChannels * Element::kBytes;
  const int t = lane % 4;
  const int dim_part = warp / Shape::kRowWarps;
  const float out_uniform = spec::OutUniform(args, sequence.kv_head);
  // What the lanes of a row add up comes ahead of all branches.
  float sum[ExtendState::kRows];
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    ops::SoftmaxRow& softmax = state.softmax[i];
    if constexpr (Shape::kWeightBlocks) {
      float factors[ExtendState::kBlocks];
      ops::JoinBlocks(state.blocks[i], softmax, factors);
#pragma unroll
      for (int b = 0; b < ExtendState::kBlocks; ++b) {
#pragma unroll
        for (int n = b * kLaneChannels; n < (b + 1) * kLaneChannels; ++n) {
          state.out[i / 2][n][i % 2 * 2] *= factors[b];
          state.out[i / 2][n][i % 2 * 2 + 1] *= factors[b];
        }
      }
    }
    if constexpr (VSide::kRowMinimum) {
      float shift = softmax.shift;
      shift += arch::ShuffleXor(shift, 1);
      shift += arch::ShuffleXor(shift, 2);
      const float factor = softmax.ToUnitOfP();
#pragma unroll
      for (int n = 0; n < Shape::kNTiles; ++n) {
        float(&out)[4] = state.out[i / 2][n];
#pragma unroll
        for (int j = i % 2 * 2; j < i % 2 * 2 + 2; ++j) {
          out[j] = arch::Fma(out[j], factor, shift);
        }
      }
    }
    sum[i] = softmax.sum;
    sum[i] += arch::ShuffleXor(sum[i], 1);
    sum[i] += arch::ShuffleXor(sum[i], 2);
  }
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    const ops::SoftmaxRow& softmax = state.softmax[i];
    const int row = state.first_row + 8 * i;
    if (row >= sequence.q_len * spec::kGroup) continue;
    const float sink2 =
        ops::SinkOf<spec::kGroup, spec::kSinks>(args, sequence, row);
    const ops::SoftmaxResult result =
        ops::FinishRow(softmax.max2, softmax.ref2, sum[i], sink2);
    const float factor = result.out_factor * out_uniform;
    const i64 token = ops::TokenOf<spec::kGroup>(sequence, row);
    const i64 head = ops::HeadOf<spec::kGroup>(sequence, row);
    u8* out =
        args.out + token * args.out_token_stride + head * args.out_head_stride;
#pragma unroll
    for (int run = 0; run < Shape::kRuns; ++run) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        // Column 2t + c of the run's tiles: the channels of lane row g = 2t + c
        // of V, neighbours.
        const int channel =
            (dim_part * Shape::kRuns + run) * Shape::VOrder::kRunChannels +
            (2 * t + c) * kLaneChannels;
        float x[kLaneChannels];
#pragma unroll
        for (int k = 0; k < kLaneChannels; ++k) {
          const int n = run * kLaneChannels + k;
          x[k] = state.out[i / 2][n][i % 2 * 2 + c] * factor;
          if constexpr (VSide::kChannelScale) {
            const float* scales = formats::GivenChannelScales<spec::kValueDim>(
                args.v, sequence.kv_head);
            x[k] *= arch::LoadGlobal<float>(scales + channel + k);
          }
        }
        u32 words[kLaneBytes / 4];
#pragma unroll
        for (int k = 0; k < kLaneChannels; k += 2) {
          Element::FromF32x2(x[k], x[k + 1], &words[k * Element::kBytes / 4]);
        }
        ops::StoreBytes<kLaneBytes>(out + channel * Element::kBytes, kLaneBytes,
                                    words);
      }
    }
    if (t == 0 && dim_part == 0 && args.lse != nullptr) {
      arch::StoreGlobal(args.lse + token * args.lse_token_stride + head,
                        result.lse);
    }
  }
}

// The sequence and its tile that block tile `tile` of all sequences is.
struct TileOfBatch {
  int batch;  // -1: no such tile
  int tile;
};

// Tiles are numbered so that a sequence's first one follows from q_indptr
// alone: with r rows before it, sequence b begins at tile r / kBlockM + b. It
// owns at least as many as it needs; those beyond its rows stay empty.
__device__ __forceinline__ i64 FirstTile(const AttentionArgs& args, int b) {
  const i64 rows =
      static_cast<i64>(arch::LoadGlobal<int>(args.q_indptr + b)) * spec::kGroup;
  return rows / spec::kBlockM + b;
}

// Each round of the search, the lanes probe 32 sequences of the range left.
__device__ __forceinline__ TileOfBatch FindTile(const AttentionArgs& args,
                                                i64 tile, int lane) {
  if (args.batch == 0 || tile >= FirstTile(args, args.batch)) return {-1, 0};
  int low = 0;  // FirstTile(low) <= tile < FirstTile(high)
  int high = args.batch;
  while (high - low > 1) {
    const int step = (high - low + 31) / 32;
    const int probe = low + lane * step;
    int found = low;
    if (probe < high && FirstTile(args, probe) <= tile) found = probe;
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
      const int other = arch::ShuffleXor(found, mask);
      found = other > found ? other : found;
    }
    low = found;
    high = low + step < high ? low + step : high;
  }
  // Below 0 where q_indptr does not begin at 0: the rows before it have none.
  const i64 of_sequence = tile - FirstTile(args, low);
  if (of_sequence < 0) return {-1, 0};
  return {low, static_cast<int>(of_sequence)};
}

__device__ __forceinline__ void ExtendRows(const AttentionArgs& args,
                                           const ops::Sequence& sequence,
                                           int row0) {
  using Shape = ExtendShape;
  const int warp = arch::ThreadIndex() / 32;
  const int lane = arch::ThreadIndex() % 32;
  const int row_warp = warp % Shape::kRowWarps;
  const int dim_part = warp / Shape::kRowWarps;

  const int rows = sequence.q_len * spec::kGroup;
  const int last_row =
      row0 + spec::kBlockM < rows ? row0 + spec::kBlockM - 1 : rows - 1;
  const ops::KeyRange first_token =
      ops::VisibleKeys<spec::kCausal, spec::kWindow>(
          sequence.kv_len, sequence.q_len, row0 / spec::kGroup);
  const ops::KeyRange last_token =
      ops::VisibleKeys<spec::kCausal, spec::kWindow>(
          sequence.kv_len, sequence.q_len, last_row / spec::kGroup);
  // Keys that some row sees, and keys that every row sees.
  const ops::KeyRange range = {first_token.first, last_token.end};
  const ops::KeyRange common = {last_token.first, first_token.end};

  const u32 shared = arch::SharedBase();
  ExtendState state;
  LoadQueries(args, sequence, row0, warp, lane, shared, state);

  const int begin = range.first / ops::kGroupKeys * ops::kGroupKeys;
  const int tiles =
      range.end > begin
          ? (range.end - begin + spec::kBlockN - 1) / spec::kBlockN
          : 0;

  ops::Selection selection = {nullptr, 0};
  if constexpr (spec::kSparseBlock > 0) {
    selection = ops::SelectionOf(args, sequence.batch, sequence.kv_head);
  }

  // Copies are dealt to warps by group: first the groups of K, then of V.
  const auto copy_tile = [&](int tile, int stage) {
    if (tile < tiles) {
      const int copy_lane = Shape::kShort ? Anew(lane) : lane;
      const u32 to = shared + Shape::kQueryBytes + stage * Shape::kStageBytes;
      for (int item = warp; item < 2 * Shape::kGroups; item += spec::kWarps) {
        const bool value_side = item >= Shape::kGroups;
        const int group = value_side ? item - Shape::kGroups : item;
        const int key = begin + tile * spec::kBlockN + group * ops::kGroupKeys;
        ops::GroupPages<spec::kPageSize, Shape::kPicked> pages;
        if constexpr (spec::kSparseBlock > 0) {
          pages.picked = selection.Bits<spec::kSparseBlock, ops::kGroupKeys>(
              key, range, copy_lane);
        }
        if constexpr (spec::kCustomMask) {
          const ops::CustomMask mask = ops::MaskOf<true>(args, sequence);
          pages.picked &= mask.Any16(row0 / spec::kGroup,
                                     last_row / spec::kGroup, key, copy_lane);
        }
        pages.Fetch(sequence.table, key, range.first, range.end, copy_lane);
        if (value_side) {
          ops::CopyKeyGroup<VSide, spec::kValueDim>(
              args.v, sequence.kv_head, pages, key, range.first, range.end,
              ValuesAt(to, group), copy_lane);
        } else {
          ops::CopyKeyGroup<KSide, spec::kHeadDim>(
              args.k, sequence.kv_head, pages, key, range.first, range.end,
              KeysAt(to, group), copy_lane);
        }
      }
    }
    arch::CpAsyncCommit();
  };
  const auto attend_tile = [&](int tile, int stage) {
    arch::CpAsyncWait<spec::kStages - 1>();
    arch::BlockSync();
    const u32 address =
        shared + Shape::kQueryBytes + stage * Shape::kStageBytes;
    for (int key = 0; key < spec::kBlockN; key += Shape::kStepKeys) {
      const int step_key = begin + tile * spec::kBlockN + key;
      if (step_key >= range.end) break;
      u32 selected = ~0u;
      if constexpr (spec::kSparseBlock > 0) {
        selected = selection.Bits<spec::kSparseBlock, Shape::kStepKeys>(
            step_key, range, lane);
        if (selected == 0) continue;
      }
      const bool masked = Shape::kPicked || step_key < common.first ||
                          step_key + Shape::kStepKeys > common.end;
      float s[Shape::kMTiles][Shape::kStepKeys / 8][4];
      if constexpr (Shape::kDotBlocks) {
        BlockDots(shared, address, key / ops::kGroupKeys, row_warp, lane, s);
      } else {
        Dots(shared, address, key / ops::kGroupKeys, row_warp, lane, s);
      }
      const bool heavy =
          Weights(args, sequence, address, key / ops::kGroupKeys, step_key,
                  masked, selected, lane % 4, s, state);
      Accumulate(address, key / ops::kGroupKeys, dim_part, lane, heavy, s,
                 state);
    }
    arch::BlockSync();
  };
  // The first rounds only copy. They are rounds of the same loop, not unrolled,
  // so that the copies are compiled once.
  int stage = 0;
#pragma unroll 1
  for (int tile = -spec::kStages; tile < tiles; ++tile) {
    if (tile >= 0) attend_tile(tile, stage);
    copy_tile(tile + spec::kStages, stage);
    stage = stage + 1 == spec::kStages ? 0 : stage + 1;
  }
  arch::CpAsyncWait<0>();
  // Read again: no register holds its facts until here.
  const ops::Sequence again(args, sequence.batch, sequence.kv_head);
  WriteRows(args, again, warp, lane, state);
}

}  // namespace kvforge::kernels

extern "C" __constant__ int kvforge_shared_bytes =
    kvforge::kernels::ExtendShape::kSharedBytes;
extern "C" __constant__ int kvforge_block_threads =
    kvforge::kernels::ExtendShape::kThreads;

extern "C" __global__ void __launch_bounds__(
    kvforge::kernels::ExtendShape::kThreads, 1)
    kvforge_kernel(const __grid_constant__ kvforge::AttentionArgs args) {
  using namespace kvforge;
  const i64 tile = arch::BlockIndex() / args.num_kv_heads;
  const int kv_head = static_cast<int>(arch::BlockIndex() % args.num_kv_heads);
  const kernels::TileOfBatch found =
      kernels::FindTile(args, tile, arch::ThreadIndex() % 32);
  if (found.batch < 0) return;
  const ops::Sequence sequence(args, found.batch, kv_head);
  const int row0 = found.tile * spec::kBlockM;
  if (row0 >= sequence.q_len * spec::kGroup) return;
  kernels::ExtendRows(args, sequence, row0);
}
