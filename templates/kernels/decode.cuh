// decode: dequant-on-dot attention of 1 to 16 query tokens a sequence over a
// paged cache, split over the KV length.
//
//   grid   ((batch * num_kv_heads + kv_head) * row_tiles + row_tile) * splits
//          + split, row_tiles = ceil(q_max * kGroup / kBlockM)
//   block  kBlockM query rows of one sequence and kv head; each warp takes
//          every kWarps-th group of 16 keys of the split through its own
//          pipeline of kStages asynchronous copies and needs no other warp
//          until the end
//
// Per group: S^T (16 keys x 8 rows) = K Q^T and O^T (channels x 8 rows) +=
// V^T P^T, keys and channels on M, so that up to 8 query rows cost no padding.
// P^T goes from accumulator to operand by an 8x8 transpose in registers.
//
// Shared memory: q where head_dim is above 256 or q takes two operands, and the
// pipelines; afterwards
// the warps' partial results, merged into one row each. With splits > 1 the row
// goes to partial_out / partial_lse, and the sink joins in split 0 only.
//
// With kSparseBlock the groups are those of the selected blocks: splits divide
// the list, and what is not selected costs nothing.
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

struct DecodeShape {
  using KGroup = ops::KeyGroup<KSide, spec::kHeadDim>;
  using VGroup = ops::KeyGroup<VSide, spec::kValueDim>;
  using KOrder = ops::ChannelOrder<KSide, spec::kHeadDim>;
  using VOrder = ops::ValueOrder<VSide, spec::kValueDim>;
  static constexpr bool kDotBlocks = ops::kBlockFactors<KSide>;
  static constexpr bool kWeightBlocks = ops::kBlockFactors<VSide>;

  static constexpr int kThreads = spec::kWarps * 32;
  static constexpr int kRowTiles = spec::kBlockM / 8;  // N tiles of 8 rows
  static constexpr int kMTiles = spec::kValueDim / 16;
  // Partial sums of S; a head_dim of 512 leaves registers for one.
  static constexpr int kSums = KOrder::kSteps < 32 && !kDotBlocks ? 2 : 1;

  // q as B operands in fragment order, where registers cannot hold it.
  static constexpr int kQueryParts =
      ops::kQueryParts<spec::QueryElement, spec::ScoreOperand,
                       KSide::kChannelScale>;
  static constexpr bool kQueryInShared =
      spec::kHeadDim > 256 || kQueryParts > 1;
  static constexpr int kQueryBytes =
      kQueryInShared ? kQueryParts * spec::kBlockM * spec::kHeadDim * 2 : 0;

  static constexpr int kStageBytes = KGroup::kBytes + VGroup::kBytes;
  static constexpr int kWarpBytes = spec::kStages * kStageBytes;
  static constexpr int kPipelineBytes = spec::kWarps * kWarpBytes;
  // One partial row: kValueDim f32, then max2, ref2, sum and a pad.
  static constexpr int kPartialRowBytes = spec::kValueDim * 4 + 16;
  static constexpr int kExchangeBytes =
      spec::kWarps * spec::kBlockM * kPartialRowBytes;
  static constexpr int kSharedBytes =
      kQueryBytes + kPipelineBytes > kExchangeBytes
          ? kQueryBytes + kPipelineBytes
          : kExchangeBytes;

  static_assert(spec::kBlockN == 16 * spec::kWarps);
  static_assert(spec::kBlockM % 8 == 0);
};

// One warp's query rows: this thread holds rows 2t and 2t + 1 of each tile
// of 8.
struct DecodeState {
  using Shape = DecodeShape;
  u32 q[Shape::kRowTiles][Shape::kQueryInShared ? 1 : Shape::KOrder::kSteps][2];
  float uniform[Shape::kRowTiles][2];
  float q_sum[Shape::kRowTiles][2];  // of the row's channels
  ops::KeyRange visible[Shape::kRowTiles][2];
  int token[Shape::kRowTiles][2];                 // kCustomMask only
  ops::ScoreBias::Row bias[Shape::kRowTiles][2];  // kScoreBias only
  ops::SoftmaxRow softmax[Shape::kRowTiles][2];
  static constexpr int kBlocks =
      Shape::kWeightBlocks ? Shape::VOrder::kRuns : 1;
  ops::BlockReference blocks[Shape::kRowTiles][2][kBlocks];
  float out[Shape::kRowTiles][Shape::kMTiles][4];
};

// Shared address of the B operand of (part, 8 rows, step) for this lane.
__device__ __forceinline__ u32 QueryFragment(u32 shared, int part, int row_tile,
                                             int step, int lane) {
  const int tile = part * DecodeShape::kRowTiles + row_tile;
  return shared + ((tile * DecodeShape::KOrder::kSteps + step) * 32 + lane) * 8;
}

__device__ __forceinline__ void LoadQueries(const AttentionArgs& args,
                                            const ops::Sequence& sequence,
                                            int row0, u32 shared, int warp,
                                            int g, int t, DecodeState& state) {
  using Shape = DecodeShape;
  const float uniform = spec::ScoreUniform(args, sequence.kv_head);
#pragma unroll
  for (int r = 0; r < Shape::kRowTiles; ++r) {
    const ops::QueryRow<KSide::kChannelScale> row = {
        ops::QueryOf<spec::kGroup>(args, sequence, row0 + 8 * r + g),
        KSide::kChannelScale ? formats::GivenChannelScales<spec::kHeadDim>(
                                   args.k, sequence.kv_head)
                             : nullptr};
    ops::PowerOfTwo scale = {1.0f, 1.0f};
    if constexpr (spec::kScaleQueryRows) {
      scale = ops::Normalizer(
          ops::QueryAmax<spec::QueryElement, Shape::KOrder>(row, t));
    }
    float q_sum = 0;
    if constexpr (KSide::kRowMinimum) {
      q_sum = ops::QuerySum<spec::QueryElement, Shape::KOrder>(row, t,
                                                               scale.factor);
    }
    if constexpr (Shape::kQueryInShared) {
      for (int step = warp; step < Shape::KOrder::kSteps;
           step += spec::kWarps) {
        u32 parts[Shape::kQueryParts][2];
        ops::QueryStep<spec::QueryElement, spec::ScoreOperand, Shape::KOrder>(
            row, step, t, scale.factor, parts);
#pragma unroll
        for (int part = 0; part < Shape::kQueryParts; ++part) {
          U32x2 words;
          words.v[0] = parts[part][0];
          words.v[1] = parts[part][1];
          arch::StoreShared(QueryFragment(shared, part, r, step, 4 * g + t),
                            words);
        }
      }
    } else {
#pragma unroll
      for (int step = 0; step < Shape::KOrder::kSteps; ++step) {
        u32 words[Shape::kQueryParts][2];
        ops::QueryStep<spec::QueryElement, spec::ScoreOperand, Shape::KOrder>(
            row, step, t, scale.factor, words);
        state.q[r][step][0] = words[0][0];
        state.q[r][step][1] = words[0][1];
      }
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float inverse = arch::ShuffleFrom(scale.inverse, (2 * t + c) * 4);
      state.uniform[r][c] = uniform * inverse;
      state.q_sum[r][c] = arch::ShuffleFrom(q_sum, (2 * t + c) * 4);
      const int token = (row0 + 8 * r + 2 * t + c) / spec::kGroup;
      state.visible[r][c] = ops::VisibleKeys<spec::kCausal, spec::kWindow>(
          sequence.kv_len, sequence.q_len, token);
      if constexpr (spec::kCustomMask) {
        state.token[r][c] = token;
        if (token >= sequence.q_len) state.visible[r][c] = {0, 0};
      }
      if constexpr (ops::kScoreBias) {
        state.bias[r][c] =
            ops::ScoreBias::Of(args, sequence, row0 + 8 * r + 2 * t + c);
      }
      state.softmax[r][c].Clear();
      for (ops::BlockReference& block : state.blocks[r][c]) block.Clear();
    }
#pragma unroll
    for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
      for (int c = 0; c < 4; ++c) state.out[r][m][c] = 0;
    }
  }
}

// Raises the references of a tile of 8 rows where a lane asks for it.
// s[2 * key_half + c]: scores of keys g, g + 8 and rows 2t, 2t + 1.
__device__ __forceinline__ void UpdateReferences(const float (&s)[4],
                                                 const float (&v_log2)[2],
                                                 int r, DecodeState& state) {
  constexpr bool kScaled = spec::kValueWeightScaled;
  float top2[2], value2[2];
  bool raise = false;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const float first = s[c] * ops::kLog2E;
    const float second = s[2 + c] * ops::kLog2E;
    top2[c] = arch::Max(first, second);
    value2[c] = kScaled ? arch::Max(first + v_log2[0], second + v_log2[1])
                        : ops::NegativeInfinity();
    raise |= state.softmax[r][c].MustRaise<kScaled>(top2[c], value2[c]);
  }
  if (!arch::WarpAny(raise)) return;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) {
      top2[c] = arch::Max(top2[c], arch::ShuffleXor(top2[c], mask));
      if constexpr (kScaled) {
        value2[c] = arch::Max(value2[c], arch::ShuffleXor(value2[c], mask));
      }
    }
    const float factor = state.softmax[r][c].Raise<kScaled>(top2[c], value2[c]);
    if constexpr (!DecodeShape::kWeightBlocks) {
#pragma unroll
      for (int m = 0; m < DecodeShape::kMTiles; ++m) {
        state.out[r][m][c] *= factor;
        state.out[r][m][2 + c] *= factor;
      }
    }
  }
}

// Whether a row that sees `visible` sees `key` of a group whose keys `readable`
// were copied.
__device__ __forceinline__ bool SeesKey(ops::KeyRange visible,
                                        ops::KeyRange readable, int key) {
  if (spec::kSparseBlock > 0 && (key < readable.first || key >= readable.end)) {
    return false;
  }
  return key >= visible.first && key < visible.end;
}

// Bit 4 * r + c: whether the custom mask and all else show key g + c / 2 * 8 of
// the group to row 2t + c % 2 of tile r. Read ahead of the dots, whose time
// hides that of the loads.
__device__ __forceinline__ u32 ShownKeys(const ops::CustomMask& mask,
                                         ops::KeyRange readable, int group_key,
                                         int g, const DecodeState& state) {
  static_assert(!spec::kCustomMask || DecodeShape::kRowTiles <= 8);
  u32 shown = 0;
#pragma unroll
  for (int r = 0; r < DecodeShape::kRowTiles; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int key = group_key + g + c / 2 * 8;
      if (SeesKey(state.visible[r][c % 2], readable, key) &&
          mask.Shows(state.token[r][c % 2], key)) {
        shown |= 1u << (4 * r + c);
      }
    }
  }
  return shown;
}

// Adds p * minimum of keys g and g + 8 to the sums of a tile of 8 rows.
// narrowed[i]: the weights of V of key g + 8 * i and rows 2t, 2t + 1.
__device__ __forceinline__ void AddMinima(const float (&p)[4],
                                          const u32 (&narrowed)[2],
                                          const ops::RowTerms (&terms)[2],
                                          int r, DecodeState& state) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    ops::SoftmaxRow& row = state.softmax[r][c % 2];
    const ops::RowTerms& key = terms[c / 2];
    const float inverse =
        1.0f / spec::ValueWeight(1.0f, key.scale) * row.InverseGain();
    const float stands_for = ops::NarrowedP<spec::ValueOperand>(
        p[c], narrowed[c / 2] >> (16 * (c % 2)), inverse);
    row.shift = arch::Fma(stands_for, key.minimum, row.shift);
  }
}

// Weights of block `run` of V's channels, as operands, from the p of keys g and
// g + 8 and rows 2t and 2t + 1 and from the keys' factors.
__device__ __forceinline__ void BlockWeights(const float (&p)[4],
                                             const float (&factor)[2], int r,
                                             int run, DecodeState& state,
                                             u32 (&weights)[2]) {
  using Shape = DecodeShape;
  constexpr int kPairs = Shape::VOrder::kLaneChannels / 2;
  float w[4];
  const auto weigh = [&] {
    bool raise = false;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const ops::SoftmaxRow& row = state.softmax[r][c];
      const ops::BlockReference& block = state.blocks[r][c][run];
      const float gain = block.Gain(row);
      w[c] = p[c] * gain * factor[0];
      w[2 + c] = p[2 + c] * gain * factor[1];
      raise |= block.MustRaise(row, arch::Max(w[c], w[2 + c]));
    }
    return raise;
  };
  if (arch::WarpAny(weigh())) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float value2 = arch::Max(arch::Log2(p[c]) + arch::Log2(factor[0]),
                               arch::Log2(p[2 + c]) + arch::Log2(factor[1]));
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) {
        value2 = arch::Max(value2, arch::ShuffleXor(value2, mask));
      }
      const float rescale =
          state.blocks[r][c][run].Raise(state.softmax[r][c], value2);
#pragma unroll
      for (int m = run * kPairs; m < (run + 1) * kPairs; ++m) {
        state.out[r][m][c] *= rescale;
        state.out[r][m][2 + c] *= rescale;
      }
    }
    weigh();
  }
  weights[0] = arch::MoveMatrix(spec::ValueOperand::Pack(w[0], w[1]));
  weights[1] = arch::MoveMatrix(spec::ValueOperand::Pack(w[2], w[3]));
}

// Attends to the 16 keys group_key .. + 15 in shared memory at `stage`, of
// which `readable` were copied.
__device__ __forceinline__ void AttendGroup(u32 shared, u32 stage,
                                            int group_key,
                                            ops::KeyRange readable,
                                            const ops::CustomMask& mask, int g,
                                            int t, DecodeState& state) {
  using Shape = DecodeShape;
  constexpr int kRowTiles = Shape::kRowTiles;
  const u32 k_group = stage;
  const u32 v_group = stage + Shape::KGroup::kBytes;
  u32 shown = 0;  // kCustomMask only
  if constexpr (spec::kCustomMask) {
    shown = ShownKeys(mask, readable, group_key, g, state);
  }

  // S^T. Two sums, so that neighbouring products do not wait for each other.
  float dots[kRowTiles][Shape::kSums][4] = {};
  // Addresses of more blocks than these would not fit the registers.
  constexpr int kUnroll =
      Shape::kDotBlocks && Shape::KOrder::kRuns > 8 ? 4 : Shape::KOrder::kRuns;
#pragma unroll kUnroll
  for (int run = 0; run < Shape::KOrder::kRuns; ++run) {
    using KeyRun = ops::KeyRun<KSide, spec::kHeadDim>;
    float partial[kRowTiles][4] = {};  // over the run's channels
#pragma unroll
    for (int part = 0; part < KeyRun::kParts; ++part) {
      KeyRun keys[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        keys[i].Load(k_group + (g + 8 * i) * Shape::KGroup::kCodePitch, run,
                     part, t);
      }
#pragma unroll
      for (int i = 0; i < KeyRun::kSteps; ++i) {
        u32 first[2], second[2];
        const u32 scales = k_group + Shape::KGroup::kBlockScales;
        keys[0].Decode(i, scales + g * Shape::KGroup::kBlockScalePitch, run,
                       part, t, first);
        keys[1].Decode(i, scales + (g + 8) * Shape::KGroup::kBlockScalePitch,
                       run, part, t, second);
        const u32 a[4] = {first[0], second[0], first[1], second[1]};
        const int step =
            run * Shape::KOrder::kStepsPerRun + part * KeyRun::kSteps + i;
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          float(&sum)[4] =
              Shape::kDotBlocks ? partial[r] : dots[r][step % Shape::kSums];
          if constexpr (Shape::kQueryInShared) {
#pragma unroll
            for (int q_part = 0; q_part < Shape::kQueryParts; ++q_part) {
              u32 q[2];
              ops::LoadSharedBytes<8>(
                  QueryFragment(shared, q_part, r, step, 4 * g + t), q);
              spec::ScoreOperand::Mma(sum, a, q);
            }
          } else {
            spec::ScoreOperand::Mma(sum, a, state.q[r][step]);
          }
        }
      }
    }
    if constexpr (Shape::kDotBlocks) {
      float factor[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        factor[i] = ops::LoadBlockFactor<KSide, spec::kHeadDim>(k_group,
                                                                g + 8 * i, run);
      }
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          dots[r][0][c] =
              arch::Fma(partial[r][c], factor[c / 2], dots[r][0][c]);
        }
      }
    }
  }

  ops::RowTerms k_terms[2], v_terms[2];  // of keys g and g + 8
  float v_log2[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    k_terms[i] = ops::LoadRowTerms<KSide, spec::kHeadDim>(k_group, g + 8 * i);
    v_terms[i] = ops::LoadRowTerms<VSide, spec::kValueDim>(v_group, g + 8 * i);
    if constexpr (spec::kValueWeightScaled) {
      v_log2[i] =
          arch::Log2(arch::Abs(spec::ValueWeight(1.0f, v_terms[i].scale)));
    }
  }

  u32 weights[kRowTiles][2];  // P^T as the B operand
  float p[kRowTiles][4];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    float s[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int key = group_key + g + c / 2 * 8;
      float dot = dots[r][0][c];
      if constexpr (Shape::kSums == 2) dot += dots[r][1][c];
      float score =
          spec::ScoreMap(dot, state.uniform[r][c % 2], k_terms[c / 2].scale,
                         state.q_sum[r][c % 2], k_terms[c / 2].minimum);
      if constexpr (ops::kScoreBias) {
        score = state.bias[r][c % 2].Apply(score, key);
      }
      const bool visible =
          spec::kCustomMask ? (shown >> (4 * r + c) & 1u) != 0
                            : SeesKey(state.visible[r][c % 2], readable, key);
      s[c] = visible ? score : ops::NegativeInfinity();
    }
    UpdateReferences(s, v_log2, r, state);
    float w[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      ops::SoftmaxRow& row = state.softmax[r][c % 2];
      p[r][c] = row.Weight(s[c]);
      row.sum += p[r][c];
      w[c] = spec::ValueWeight(p[r][c], v_terms[c / 2].scale) * row.gain;
    }
    if constexpr (Shape::kWeightBlocks) continue;
    const u32 narrowed[2] = {spec::ValueOperand::Pack(w[0], w[1]),
                             spec::ValueOperand::Pack(w[2], w[3])};
    if constexpr (VSide::kRowMinimum)
      AddMinima(p[r], narrowed, v_terms, r, state);
    weights[r][0] = arch::MoveMatrix(narrowed[0]);
    weights[r][1] = arch::MoveMatrix(narrowed[1]);
  }

  // O^T.
#pragma unroll
  for (int run = 0; run < Shape::VOrder::kRuns; ++run) {
    ops::ValueRun<VSide, spec::kValueDim> values;
    values.Load(v_group, run, g, t);
    if constexpr (Shape::kWeightBlocks) {
      float factor[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        factor[i] = ops::LoadBlockFactor<VSide, spec::kValueDim>(
            v_group, g + 8 * i, run);
      }
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        BlockWeights(p[r], factor, r, run, state, weights[r]);
      }
    }
#pragma unroll
    for (int pair = 0; pair < Shape::VOrder::kLaneChannels / 2; ++pair) {
      u32 v[2][2];
      values.Decode(pair, v);
      const u32 a[4] = {v[0][0], v[1][0], v[0][1], v[1][1]};
      const int m = run * (Shape::VOrder::kLaneChannels / 2) + pair;
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        spec::ValueOperand::Mma(state.out[r][m], a, weights[r]);
      }
    }
  }
}

// Writes the warp's rows to its part of the exchange area.
__device__ __forceinline__ void WritePartials(u32 exchange, int warp, int g,
                                              int t, DecodeState& state) {
  using Shape = DecodeShape;
#pragma unroll
  for (int r = 0; r < Shape::kRowTiles; ++r) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if constexpr (Shape::kWeightBlocks) {
        constexpr int kPairs = Shape::VOrder::kLaneChannels / 2;
        float factors[DecodeState::kBlocks];
        ops::JoinBlocks(state.blocks[r][c], state.softmax[r][c], factors);
#pragma unroll
        for (int b = 0; b < DecodeState::kBlocks; ++b) {
#pragma unroll
          for (int m = b * kPairs; m < (b + 1) * kPairs; ++m) {
            state.out[r][m][c] *= factors[b];
            state.out[r][m][2 + c] *= factors[b];
          }
        }
      }
      if constexpr (VSide::kRowMinimum) {
        float shift = state.softmax[r][c].shift;
#pragma unroll
        for (int mask = 4; mask < 32; mask *= 2) {
          shift += arch::ShuffleXor(shift, mask);
        }
        const float factor = state.softmax[r][c].ToUnitOfP();
#pragma unroll
        for (int m = 0; m < Shape::kMTiles; ++m) {
          float(&out)[4] = state.out[r][m];
          out[c] = arch::Fma(out[c], factor, shift);
          out[2 + c] = arch::Fma(out[2 + c], factor, shift);
        }
      }
      const u32 row = exchange + (warp * spec::kBlockM + 8 * r + 2 * t + c) *
                                     Shape::kPartialRowBytes;
#pragma unroll
      for (int m = 0; m < Shape::kMTiles; ++m) {
        constexpr int kPairs = Shape::VOrder::kLaneChannels / 2;
        const int channel = m / kPairs * Shape::VOrder::kRunChannels +
                            g * Shape::VOrder::kLaneChannels + m % kPairs * 2;
        U32x2 values;
        values.v[0] = arch::Bits(state.out[r][m][c]);
        values.v[1] = arch::Bits(state.out[r][m][2 + c]);
        arch::StoreShared(row + channel * 4, values);
      }
      float sum = state.softmax[r][c].sum;
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) {
        sum += arch::ShuffleXor(sum, mask);
      }
      if (g == 0) {
        const u32 facts = row + spec::kValueDim * 4;
        arch::StoreShared(facts, state.softmax[r][c].max2);
        arch::StoreShared(facts + 4, state.softmax[r][c].ref2);
        arch::StoreShared(facts + 8, sum);
      }
    }
  }
}

// Merges the warps' partials of each row and writes the row.
__device__ __forceinline__ void WriteRows(const AttentionArgs& args,
                                          const ops::Sequence& sequence,
                                          int row0, int split, u32 exchange,
                                          int warp, int lane) {
  using Shape = DecodeShape;
  const float out_uniform = spec::OutUniform(args, sequence.kv_head);
  const i64 q_heads = static_cast<i64>(args.num_kv_heads) * spec::kGroup;
  for (int r = warp; r < spec::kBlockM; r += spec::kWarps) {
    const int row = row0 + r;
    if (row >= sequence.q_len * spec::kGroup) break;
    const i64 token = ops::TokenOf<spec::kGroup>(sequence, row);
    const i64 head = ops::HeadOf<spec::kGroup>(sequence, row);

    float max2[spec::kWarps], ref2[spec::kWarps], sums[spec::kWarps];
    float top2 = ops::NegativeInfinity();
    float top_ref2 = ops::NegativeInfinity();
#pragma unroll
    for (int w = 0; w < spec::kWarps; ++w) {
      const u32 facts = exchange +
                        (w * spec::kBlockM + r) * Shape::kPartialRowBytes +
                        spec::kValueDim * 4;
      max2[w] = arch::LoadShared<float>(facts);
      ref2[w] = arch::LoadShared<float>(facts + 4);
      sums[w] = arch::LoadShared<float>(facts + 8);
      top2 = arch::Max(top2, max2[w]);
      top_ref2 = arch::Max(top_ref2, ref2[w]);
    }
    float sum = 0;
    float factors[spec::kWarps];
#pragma unroll
    for (int w = 0; w < spec::kWarps; ++w) {
      const bool seen = max2[w] != ops::NegativeInfinity();
      // Without a maximum the sum is 0, or NaN where every score was.
      sum += seen ? sums[w] * arch::Exp2(max2[w] - top2) : sums[w];
      factors[w] = seen ? arch::Exp2(ref2[w] - top_ref2) : 0.0f;
    }
    const float sink2 = split == 0 ? ops::SinkOf<spec::kGroup, spec::kSinks>(
                                         args, sequence, row)
                                   : ops::NegativeInfinity();
    const ops::SoftmaxResult result =
        ops::FinishRow(top2, top_ref2, sum, sink2);
    const float out_factor = result.out_factor * out_uniform;

    const i64 partial_row =
        (static_cast<i64>(split) * args.total_q + token) * q_heads + head;
    u8* out = args.splits > 1
                  ? reinterpret_cast<u8*>(args.partial_out +
                                          partial_row * spec::kValueDim)
                  : args.out + token * args.out_token_stride +
                        head * args.out_head_stride;
    for (int channel = 2 * lane; channel < spec::kValueDim; channel += 64) {
      float x[2] = {0, 0};
#pragma unroll
      for (int w = 0; w < spec::kWarps; ++w) {
        const U32x2 values = arch::LoadShared<U32x2>(
            exchange + (w * spec::kBlockM + r) * Shape::kPartialRowBytes +
            channel * 4);
        x[0] = arch::Fma(arch::FromBits(values.v[0]), factors[w], x[0]);
        x[1] = arch::Fma(arch::FromBits(values.v[1]), factors[w], x[1]);
      }
      x[0] *= out_factor;
      x[1] *= out_factor;
      if constexpr (VSide::kChannelScale) {
        const float* scales = formats::GivenChannelScales<spec::kValueDim>(
                                  args.v, sequence.kv_head) +
                              channel;
        x[0] *= arch::LoadGlobal<float>(scales);
        x[1] *= arch::LoadGlobal<float>(scales + 1);
      }
      if (args.splits > 1) {
        arch::StoreGlobal(out + channel * 4, x[0]);
        arch::StoreGlobal(out + channel * 4 + 4, x[1]);
      } else {
        constexpr int kWords = spec::OutElement::kBytes / 2;
        u32 words[kWords];
        spec::OutElement::FromF32x2(x[0], x[1], words);
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
          arch::StoreGlobal(out + channel * spec::OutElement::kBytes + 4 * i,
                            words[i]);
        }
      }
    }
    if (lane == 0) {
      if (args.splits > 1) {
        arch::StoreGlobal(args.partial_lse + partial_row, result.lse);
      } else if (args.lse != nullptr) {
        arch::StoreGlobal(args.lse + token * args.lse_token_stride + head,
                          result.lse);
      }
    }
  }
}

__device__ __forceinline__ void DecodeRows(const AttentionArgs& args,
                                           const ops::Sequence& sequence,
                                           int row0, int split) {
  using Shape = DecodeShape;
  const int warp = arch::ThreadIndex() / 32;
  const int lane = arch::ThreadIndex() % 32;
  const int g = lane / 4;
  const int t = lane % 4;

  const int rows = sequence.q_len * spec::kGroup;
  const int last_row =
      row0 + spec::kBlockM < rows ? row0 + spec::kBlockM - 1 : rows - 1;
  const ops::KeyRange range =
      ops::VisibleKeysOfTokens<spec::kCausal, spec::kWindow>(
          sequence.kv_len, sequence.q_len, row0 / spec::kGroup,
          last_row / spec::kGroup);

  // Units of work: the groups of 16 keys that hold `range`, or those of the
  // selected blocks. This split's are split_begin up to split_end.
  using Walk = ops::GroupWalk<spec::kSparseBlock, spec::kWarps>;
  Walk next;  // the next group to copy
  next.range = range;
  int first_group = range.first / ops::kGroupKeys;
  const int end_group = (range.end + ops::kGroupKeys - 1) / ops::kGroupKeys;
  int groups = end_group > first_group ? end_group - first_group : 0;
  if constexpr (spec::kSparseBlock > 0) {
    next.selection = ops::SelectionOf(args, sequence);
    first_group = 0;
    groups = next.selection.count * Walk::kUnits;
  }
  const int per_split = (groups + args.splits - 1) / args.splits;
  const i64 begin = static_cast<i64>(per_split) * split;
  const int split_begin = begin < groups ? static_cast<int>(begin) : groups;
  const int split_end =
      per_split < groups - split_begin ? split_begin + per_split : groups;

  const u32 shared = arch::SharedBase();
  const u32 pipeline = shared + Shape::kQueryBytes + warp * Shape::kWarpBytes;
  DecodeState state;
  LoadQueries(args, sequence, row0, shared, warp, g, t, state);
  if constexpr (Shape::kQueryInShared) arch::BlockSync();

  next.Start(first_group + split_begin + warp, first_group + split_end);
  Walk now = next;  // the next group to attend to

  const ops::CustomMask mask = ops::MaskOf<spec::kCustomMask>(args, sequence);
  ops::GroupPages<spec::kPageSize, spec::kCustomMask> pages;
  const auto fetch_pages = [&] {
    const int key = next.group * ops::kGroupKeys;
    if constexpr (spec::kCustomMask) {
      if (next.Done()) return;
      pages.picked =
          mask.Any16(row0 / spec::kGroup, last_row / spec::kGroup, key, lane);
    }
    pages.Fetch(sequence.table, key, next.keys.first,
                next.Done() ? 0 : next.keys.end, lane);
  };
  fetch_pages();
  const auto copy_next = [&](int stage) {
    if (!next.Done()) {
      const int key = next.group * ops::kGroupKeys;
      const u32 to = pipeline + stage * Shape::kStageBytes;
      ops::CopyKeyGroup<KSide, spec::kHeadDim>(args.k, sequence.kv_head, pages,
                                               key, next.keys.first,
                                               next.keys.end, to, lane);
      ops::CopyKeyGroup<VSide, spec::kValueDim>(
          args.v, sequence.kv_head, pages, key, next.keys.first, next.keys.end,
          to + Shape::KGroup::kBytes, lane);
      next.Next();
      fetch_pages();
    }
    arch::CpAsyncCommit();
  };
#pragma unroll
  for (int stage = 0; stage < spec::kStages; ++stage) copy_next(stage);

  int stage = 0;
  for (; !now.Done(); now.Next()) {
    arch::CpAsyncWait<spec::kStages - 1>();
    arch::WarpSync();
    AttendGroup(shared, pipeline + stage * Shape::kStageBytes,
                now.group * ops::kGroupKeys, now.keys, mask, g, t, state);
    arch::WarpSync();
    copy_next(stage);
    stage = stage + 1 == spec::kStages ? 0 : stage + 1;
  }

  arch::CpAsyncWait<0>();
  arch::BlockSync();
  WritePartials(shared, warp, g, t, state);
  arch::BlockSync();
  WriteRows(args, sequence, row0, split, shared, warp, lane);
}

}  // namespace kvforge::kernels

extern "C" __constant__ int kvforge_shared_bytes =
    kvforge::kernels::DecodeShape::kSharedBytes;
extern "C" __constant__ int kvforge_block_threads =
    kvforge::kernels::DecodeShape::kThreads;

extern "C" __global__ void __launch_bounds__(
    kvforge::kernels::DecodeShape::kThreads, 1)
    kvforge_kernel(const __grid_constant__ kvforge::AttentionArgs args) {
  using namespace kvforge;
  const i64 units = static_cast<i64>(args.batch) * args.num_kv_heads;
  const int row_tiles =
      static_cast<int>(arch::BlockCount() / (units * args.splits));
  i64 index = arch::BlockIndex();
  const int split = static_cast<int>(index % args.splits);
  index /= args.splits;
  const int row_tile = static_cast<int>(index % row_tiles);
  index /= row_tiles;
  const int kv_head = static_cast<int>(index % args.num_kv_heads);
  const int batch = static_cast<int>(index / args.num_kv_heads);

  const ops::Sequence sequence(args, batch, kv_head);
  const int rows = sequence.q_len * spec::kGroup;
  for (int row0 = row_tile * spec::kBlockM; row0 < rows;
       row0 += row_tiles * spec::kBlockM) {
    kernels::DecodeRows(args, sequence, row0, split);
    arch::BlockSync();
  }
}
