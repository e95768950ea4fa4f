// One group of 16 keys against the query rows of a warp.
#ifndef KVFORGE_TEMPLATES_KERNELS_DECODE_ATTEND_CUH_
#define KVFORGE_TEMPLATES_KERNELS_DECODE_ATTEND_CUH_

#include "kernels/decode/queries.cuh"
#include "kernels/decode/stage.cuh"
#include "ops/custom_mask.cuh"

namespace kvforge::kernels {

// Raises the references of a tile of 8 rows to what its scores and weights
// need. s[2 * key_half + c]: scores of keys g, g + 8 and rows 2t, 2t + 1.
__device__ __forceinline__ void RaiseReferences(
    const float (&s)[4], const ops::RowTerms (&v_terms)[2], int r,
    DecodeState& state) {
  constexpr bool kScaled = spec::kValueWeightScaled;
  float v_log2[2] = {0.0f, 0.0f};
  if constexpr (kScaled) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      v_log2[i] =
          arch::Log2(arch::Abs(spec::ValueWeight(1.0f, v_terms[i].scale)));
    }
  }
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const float first = s[c] * ops::kLog2E;
    const float second = s[2 + c] * ops::kLog2E;
    float top2 = arch::Max(first, second);
    float value2 = kScaled ? arch::Max(first + v_log2[0], second + v_log2[1])
                           : ops::NegativeInfinity();
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) {
      top2 = arch::Max(top2, arch::ShuffleXor(top2, mask));
      if constexpr (kScaled) {
        value2 = arch::Max(value2, arch::ShuffleXor(value2, mask));
      }
    }
    const float factor = state.softmax[r][c].Raise<kScaled>(top2, value2);
    if constexpr (!DecodeShape::kWeightBlocks) {
#pragma unroll
      for (int m = 0; m < DecodeShape::kMTiles; ++m) {
        state.out[r][m][c] *= factor;
        state.out[r][m][2 + c] *= factor;
      }
    }
  }
}

// Whether every row of the warp sees all keys of a group that were copied.
__device__ __forceinline__ bool SeesGroup(ops::KeyRange common,
                                          ops::KeyRange readable,
                                          int group_key) {
  if (spec::kCustomMask) return false;
  const int end = group_key + ops::kGroupKeys;
  if (spec::kSparseBlock > 0 &&
      (group_key < readable.first || end > readable.end)) {
    return false;
  }
  return group_key >= common.first && end <= common.end;
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

// Tells the producer that this thread needs its warp's piece of a stage no
// more.
__device__ __forceinline__ void ReleasePiece(u32 free) {
  arch::MbarrierArrive(free);
}

// Attends to the 16 keys group_key .. + 15 in shared memory, of which
// `readable` were copied, and releases the piece at the barrier `free`.
__device__ __forceinline__ void AttendGroup(
    u32 shared, const ops::GroupPlace& k_group, const ops::GroupPlace& v_group,
    u32 free, int group_key, ops::KeyRange readable,
    const ops::CustomMask& mask, int lane, DecodeState& state) {
  using Shape = DecodeShape;
  using KeyRun = ops::KeyRun<KSide, spec::kHeadDim>;
  using ValueRun = ops::ValueRun<VSide, spec::kValueDim>;
  constexpr int kRowTiles = Shape::kRowTiles;
  const int g = lane / 4;
  const int t = lane % 4;
  const auto load_keys = [&](int run, int part, KeyRun(&keys)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      keys[i].Load(k_group, g + 8 * i, run, part, t);
    }
  };

  // Where a piece fits the registers all of it is read first: the stage is free
  // before the softmax, and no product waits for shared memory.
  constexpr int kAheadKeys = Shape::kLoadAhead ? Shape::kKeyParts : 1;
  constexpr int kAheadValues = Shape::kLoadAhead ? Shape::VOrder::kRuns : 1;
  KeyRun ahead_keys[kAheadKeys][2];
  ValueRun ahead_values[kAheadValues];
  ops::RowTerms k_terms[2], v_terms[2];  // of keys g and g + 8
  const auto load_terms = [&] {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      k_terms[i] = ops::LoadRowTerms<KSide, spec::kHeadDim>(k_group, g + 8 * i);
      v_terms[i] =
          ops::LoadRowTerms<VSide, spec::kValueDim>(v_group, g + 8 * i);
    }
  };
  if constexpr (Shape::kLoadAhead) {
#pragma unroll
    for (int i = 0; i < kAheadKeys; ++i) {
      load_keys(i / KeyRun::kParts, i % KeyRun::kParts, ahead_keys[i]);
    }
    load_terms();
#pragma unroll
    for (int run = 0; run < kAheadValues; ++run) {
      ahead_values[run].Load(v_group, run, g, t);
    }
  }

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
    float partial[kRowTiles][4] = {};  // over the run's channels
#pragma unroll
    for (int part = 0; part < KeyRun::kParts; ++part) {
      KeyRun read_keys[2];
      if constexpr (!Shape::kLoadAhead) load_keys(run, part, read_keys);
      KeyRun(&keys)[2] =
          Shape::kLoadAhead
              ? ahead_keys[(run * KeyRun::kParts + part) % kAheadKeys]
              : read_keys;
#pragma unroll
      for (int i = 0; i < KeyRun::kSteps; ++i) {
        u32 first[2], second[2];
        keys[0].Decode(i, first);
        keys[1].Decode(i, second);
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

  if constexpr (Shape::kLoadAhead) {
    ReleasePiece(free);
  } else {
    load_terms();
  }
  const bool sees_group = SeesGroup(state.common, readable, group_key);

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
      s[c] = score;
    }
    if (!sees_group) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int key = group_key + g + c / 2 * 8;
        const bool visible =
            spec::kCustomMask ? (shown >> (4 * r + c) & 1u) != 0
                              : SeesKey(state.visible[r][c % 2], readable, key);
        if (!visible) s[c] = ops::NegativeInfinity();
      }
    }
    float w[4];
    const auto weigh = [&] {
      bool raise = false;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const ops::SoftmaxRow& row = state.softmax[r][c % 2];
        p[r][c] = row.WeightSoFar(s[c]);
        w[c] = spec::ValueWeight(p[r][c], v_terms[c / 2].scale) * row.gain;
        raise |= ops::SoftmaxRow::PassesSlack<spec::kValueWeightScaled>(p[r][c],
                                                                        w[c]);
      }
      return raise;
    };
    if (arch::WarpAny(weigh())) {
      RaiseReferences(s, v_terms, r, state);
      weigh();
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) state.softmax[r][c % 2].sum += p[r][c];
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
    ValueRun read_values;
    if constexpr (!Shape::kLoadAhead) read_values.Load(v_group, run, g, t);
    ValueRun& values =
        Shape::kLoadAhead ? ahead_values[run % kAheadValues] : read_values;
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
  if constexpr (!Shape::kLoadAhead) ReleasePiece(free);
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_DECODE_ATTEND_CUH_
