// The consumers of extend on warpgroups: scores, weights and output of 64 query
// rows, out of the slots of kernels/extend/ring.cuh.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_CONSUMER_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_CONSUMER_CUH_

#include "kernels/extend/ring.cuh"
#include "kernels/extend/weights.cuh"
#include "kernels/extend/work.cuh"

namespace kvforge::kernels {

// q as LoadQueries writes it: an image of 64 rows for each (part, warpgroup),
// channels in the order of K's.
struct QueryImages {
  static constexpr int kHalfBytes = 64 * ExtendRing::kLineBytes;
  static constexpr int kBytes = spec::kHeadDim / 64 * kHalfBytes;

  static __device__ __forceinline__ u32 Image(u32 shared, int part,
                                              int warpgroup) {
    return shared + (part * 2 + warpgroup) * kBytes;
  }
  static __device__ __forceinline__ u32 Word(u32 shared, int part, int m_tile,
                                             int half, int step, int lane,
                                             int pair) {
    const int row = m_tile % 4 * 16 + half * 8 + lane / 4;
    const int u = step / 2;
    const int unit = (u % 2 * 4 + lane % 4) ^ (row % 8);
    return Image(shared, part, m_tile / 4) + u / 2 * kHalfBytes +
           row * ExtendRing::kLineBytes + unit * 16 + (step % 2 * 2 + pair) * 4;
  }
};

// Row terms of a tile's keys in its slots.
struct SlotTerms {
  u32 keys;
  u32 values;

  // Of tiles n and n + 1 of 8 keys, n even, for lane t of a row.
  template <class Side>
  static __device__ __forceinline__ void Load(u32 terms, int n, int t,
                                              ops::RowTerms (&to)[2][2]) {
    const u32 place = terms + t * ExtendRing::kLaneBytes + 8 * n;
    if constexpr (Side::kRowScale) {
      const U32x4 scales = arch::LoadShared<U32x4>(place);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        to[i / 2][i % 2].scale = arch::FromBits(scales.v[i]);
      }
    }
  }
  __device__ __forceinline__ void LoadKeyTerms(
      int n, int t, ops::RowTerms (&to)[2][2]) const {
    Load<KSide>(keys, n, t, to);
  }
  __device__ __forceinline__ void LoadValueTerms(
      int n, int t, ops::RowTerms (&to)[2][2]) const {
    Load<VSide>(values, n, t, to);
  }
  // The factors of weights of four groups of 16 keys whose images hold the rest
  // of them, from `group` on, a multiple of 4.
  struct Units {
    float log2[4] = {0, 0, 0, 0};  // NaN: the image holds nothing of it
    float inverse[4] = {1, 1, 1, 1};
  };
  __device__ __forceinline__ Units LoadUnits(int group) const {
    const u32 place = values + ExtendRing::kScalesBytes + 4 * group;
    const U32x4 log2 = arch::LoadShared<U32x4>(place + ExtendRing::kTopsBytes);
    const U32x4 inverse =
        arch::LoadShared<U32x4>(place + 2 * ExtendRing::kTopsBytes);
    Units units;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      units.log2[i] = arch::FromBits(log2.v[i]);
      units.inverse[i] = arch::FromBits(inverse.v[i]);
    }
    return units;
  }
  // The largest factor of a weight.
  __device__ __forceinline__ float LargestValue() const {
    const u32 tops = values + ExtendRing::kScalesBytes;
    float largest = 0;
    if constexpr (spec::kValueWeightScaled) {
#pragma unroll
      for (int group = 0; group < ExtendShape::kGroups; group += 4) {
        const U32x4 of_groups = arch::LoadShared<U32x4>(tops + 4 * group);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          largest = arch::Max(largest, arch::FromBits(of_groups.v[i]));
        }
      }
    }
    return largest;
  }
};

// One warpgroup's part of a block. The warpgroups take turns at the tensor
// cores: while one multiplies, the other turns its scores into weights.
struct Consumer {
  using Shape = ExtendShape;
  using Scores = arch::Wgmma<ExtendRing::kKeys>;
  // Columns of one product of p V: 256 at once would not fit the registers that
  // the block is launched with.
  static constexpr int kColumns =
      spec::kValueDim > 192 ? spec::kValueDim / 2 : spec::kValueDim;
  using Output = arch::Wgmma<kColumns>;
  static_assert(kColumns % 64 == 0);
  static constexpr int kStepTiles = Shape::kStepKeys / 8;
  static constexpr int kDepthSteps = ExtendRing::kKeys / 16;

  static constexpr bool kOnePass = Shape::kOnePass;

  const AttentionArgs& args;
  const ops::Sequence& sequence;
  const ExtendWork& work;
  const ExtendRing& ring;
  int warpgroup;
  int lane;
  u32 first_slot;  // of the ring: the first tile's K
  u32 query;       // its images
  ExtendState state;
  float s[ExtendRing::kKeys / 8][4];
  u32 weights[kDepthSteps][4];
  bool wild;  // some row's unit is not 1 (kUniformInTerms)
  // Terms of the next tile's first keys, read ahead of its dots (kOnePass).
  static constexpr int kAhead = ExtendRing::kKeys / 32;
  ops::RowTerms ahead[kAhead][2][2];
  u32 rest[Shape::kTwoPartWeights ? kDepthSteps : 1][4];

  // s = q K^T.
  __device__ __forceinline__ void AskForScores(ExtendRing::Slot slot) {
#pragma unroll
    for (int part = 0; part < Shape::kQueryParts; ++part) {
      // Of a shuffle the compiler knows that all lanes have the same.
      const u32 image =
          arch::ShuffleFrom(QueryImages::Image(query, part, warpgroup), 0);
      const u64 q = arch::SharedMatrix(image, 16, 1024);
      const u64 k = arch::SharedMatrix(ring.Image(slot), 16, 1024);
#pragma unroll
      for (int step = 0; step < spec::kHeadDim / 16; ++step) {
        const int inside = step % 4 * 32;
        spec::ScoreOperand::template GroupProduct<Scores, false>(
            s, arch::Behind(q, step / 4 * QueryImages::kHalfBytes + inside),
            arch::Behind(k, step / 4 * ExtendRing::kHalfBytes + inside),
            part > 0 || step > 0);
      }
    }
  }
  // out += p V.
  template <int kSteps>
  __device__ __forceinline__ void AskForOutput(const u32 (&p)[kSteps][4],
                                               ExtendRing::Slot slot) {
    const u64 v = arch::SharedMatrix(ring.Image(slot), ExtendRing::kHalfBytes,
                                     8 * ExtendRing::kLineBytes);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int column = 0; column < spec::kValueDim; column += kColumns) {
        using Part = float[kColumns / 8][4];
        spec::ValueOperand::template GroupProduct<Output, true>(
            reinterpret_cast<Part&>(state.out[0][column / 8]), p[step],
            arch::Behind(v, column / 64 * ExtendRing::kHalfBytes +
                                step * 16 * ExtendRing::kLineBytes),
            true);
      }
    }
  }

  // s = q K^T of the warp's rows alone, by warp products out of the images.
  __device__ __forceinline__ void WorkOutDots(ExtendRing::Slot slot) {
    const int g = Anew(lane) / 4;
    const int t = lane % 4;
    const int row = arch::ThreadIndex() / 32 % 4 * 16 + g;
    // Word t of a step's first 8 channels, or of its last 8, of a line.
    const auto word = [&](u32 image, int half_bytes, int line, int step,
                          int pair) {
      const int unit = (step % 4 * 2 + pair) ^ (line % 8);
      return arch::LoadShared<u32>(image + step / 4 * half_bytes +
                                   line * ExtendRing::kLineBytes + unit * 16 +
                                   4 * t);
    };
#pragma unroll
    for (int n = 0; n < ExtendRing::kKeys / 8; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) s[n][c] = 0;
    }
#pragma unroll 1
    for (int part = 0; part < Shape::kQueryParts; ++part) {
      const u32 q = QueryImages::Image(query, part, warpgroup);
#pragma unroll 1
      for (int step = 0; step < spec::kHeadDim / 16; ++step) {
        u32 a[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          a[i] = word(q, QueryImages::kHalfBytes, row + i % 2 * 8, step, i / 2);
        }
#pragma unroll
        for (int n = 0; n < ExtendRing::kKeys / 8; ++n) {
          u32 b[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            b[i] = word(ring.Image(slot), ExtendRing::kHalfBytes, 8 * n + g,
                        step, i);
          }
          spec::ScoreOperand::Mma(s[n], a, b);
        }
      }
    }
  }

  // Dots to weights by the references as they are, in one pass. False if some
  // weight of the warp could pass its range, or images of the tile do not fold
  // V's factors: the dots are lost then.
  __device__ __forceinline__ bool WeighAtOnce(SlotTerms terms) {
    // A thread's weights of a row add up to no more than this, so that of equal
    // scores none fails and all fit f16. The other keeps sums in f32's range.
    constexpr float kMostWeights = 0x1p15f;
    constexpr float kMostP = 0x1p100f;
    float weights_sum[ExtendState::kRows] = {};
    float p_sum[ExtendState::kRows] = {};  // in the unit of unfolded weights
    SlotTerms::Units units;
    constexpr int kTiles = ExtendRing::kKeys / 8;
    static_assert(ops::kGroupKeys == 16);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      ops::RowTerms k_terms[2][2];
      if (n / 2 < kAhead) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          k_terms[i / 2][i % 2] = ahead[n / 2 % kAhead][i / 2][i % 2];
        }
      } else {
        terms.LoadKeyTerms(n, lane % 4, k_terms);
      }
      if constexpr (Shape::kFoldsValues) {
        if (n % 8 == 0) units = terms.LoadUnits(n / 2);
      }
#pragma unroll
      for (int i = 0; i < ExtendState::kRows; ++i) {
        const float reference = state.softmax[i].ref2 - units.log2[n / 2 % 4];
        float sum[2];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          float p[2];
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            float& x = s[n + k][2 * i + j];
            // ScoreMap is a product, of the dot and what it makes of 1.
            const float term =
                spec::ScoreMap(1.0f, 1.0f, k_terms[k][j].scale, 0.0f, 0.0f);
            p[j] = Shape::kUniformInTerms
                       ? arch::Exp2(arch::Fma(x, term, -reference))
                       : arch::Exp2(
                             arch::Fma(x * term, state.Unit2(i), -reference));
            x = p[j];
          }
          sum[k] = p[0] + p[1];
        }
        sum[0] += sum[1];
        weights_sum[i] += sum[0];
        p_sum[i] = arch::Fma(sum[0], units.inverse[n / 2 % 4], p_sum[i]);
      }
    }
    bool fails = false;
#pragma unroll
    for (int i = 0; i < ExtendState::kRows; ++i) {
      p_sum[i] *= state.softmax[i].InverseGain();
      fails |= !(weights_sum[i] <= kMostWeights && p_sum[i] <= kMostP);
    }
    if (arch::WarpAny(fails)) return false;
#pragma unroll
    for (int i = 0; i < ExtendState::kRows; ++i) {
      state.softmax[i].sum += p_sum[i];
    }
    return true;
  }

  // Dots to weights where references may have to be raised: first a tile's
  // scores, then the references, then the weights. `raise`: whether all
  // references are to be. Whether some key is heavy; `factor`: for the output
  // where `raised`.
  __device__ __forceinline__ bool WeighInSteps(
      int first, bool masked, SlotTerms terms, bool raise, bool& raised,
      float (&factor)[ExtendState::kRows]) {
    StepTops tops;
    tops.Clear();
    tops.value = terms.LargestValue();
#pragma unroll
    for (int key = 0; key < ExtendRing::kKeys; key += Shape::kStepKeys) {
      MapScores(args, sequence, terms, key / 8, first + key, lane % 4, state,
                Step(key));
    }
    if (masked) {
#pragma unroll
      for (int key = 0; key < ExtendRing::kKeys; key += Shape::kStepKeys) {
        MaskScores(args, sequence, first + key, ~0u, lane % 4, state,
                   Step(key));
      }
    }
#pragma unroll
    for (int key = 0; key < ExtendRing::kKeys; key += Shape::kStepKeys) {
      FindTops(Step(key), tops);
    }
    const bool heavy = Raise(
        tops, reinterpret_cast<const float(&)[1][ExtendRing::kKeys / 8][4]>(s),
        [&](int n, ops::RowTerms(&v_terms)[2][2]) {
          // Not all at once: registers are short.
          terms.LoadValueTerms(n, Anew(lane) % 4, v_terms);
        },
        raise, state,
        [&](const float(&factors)[ExtendState::kRows]) {
          raised = true;
#pragma unroll
          for (int i = 0; i < ExtendState::kRows; ++i) factor[i] = factors[i];
        });
#pragma unroll
    for (int key = 0; key < ExtendRing::kKeys; key += Shape::kStepKeys) {
      ops::RowTerms v_terms[kStepTiles / 2][2][2];
#pragma unroll
      for (int n = 0; n < kStepTiles; n += 2) {
        terms.LoadValueTerms(key / 8 + n, lane % 4, v_terms[n / 2]);
      }
      WeighScores(v_terms, Step(key), state);
    }
    return heavy;
  }

  // Of the tile before `tile`, whose output is done.
  __device__ __forceinline__ void ReleaseValues(int tile) {
    if (tile > 0) {
      arch::MbarrierArrive(
          ring.Free(ExtendRing::Slot{first_slot + 2 * tile - 1}));
    }
  }

  // Dots to weights of V, packed. The product of the tile before is under way
  // until they are.
  __device__ __forceinline__ void Weigh(int tile) {
    const ExtendRing::Slot keys = {first_slot + 2 * tile};
    const ExtendRing::Slot values = {first_slot + 2 * tile + 1};
    const SlotTerms terms = {ring.Terms(keys),
                             spec::kImages
                                 ? ring.Terms(keys) + ExtendRing::kKeyTermsBytes
                                 : ring.Terms(values)};
    const int first = work.begin + tile * ExtendRing::kKeys;
    const bool masked = Shape::kPicked || first < work.common.first ||
                        first + ExtendRing::kKeys > work.common.end;
    bool raised = false;
    bool heavy = false;
    float factor[ExtendState::kRows];
    bool weighed = false;
    bool failed = false;
    if constexpr (kOnePass) {
      // A first tile has no references yet.
      if (tile > 0 && !masked && !wild) {
        weighed = WeighAtOnce(terms);
        if (!weighed) {
          failed = true;
          WorkOutDots(keys);
        }
      }
    }
    if (!weighed) {
      heavy = WeighInSteps(first, masked, terms, failed, raised, factor);
    }
    arch::MbarrierArrive(ring.Free(keys));
    arch::WgmmaWait<0>(state.out[0]);
    ReleaseValues(tile);
    if (raised) ScaleOutput(factor, state);
#pragma unroll
    for (int n = 0; n < ExtendRing::kKeys / 8; n += 2) {
      Pack(s[n], s[n + 1], n / 2);
    }
    NoteHeavy(heavy, state);
    if constexpr (Shape::kTwoPartWeights) {
      // What its weights lose is multiplied by all or by none.
      if (arch::NamedAny(kConsumerBarrier + warpgroup, 128, heavy)) {
        if (spec::kImages) {
          arch::MbarrierWait(ring.Filled(values), values.Phase());
        }
        arch::WgmmaBegin();
        AskForOutput(rest, values);
        arch::WgmmaCommit();
        arch::WgmmaWait<0>(state.out[0]);
      }
    }
  }
  // The dots of kStepKeys keys.
  __device__ __forceinline__ float (&Step(int key))[1][kStepTiles][4] {
    return reinterpret_cast<float(&)[1][kStepTiles][4]>(s[key / 8]);
  }
  __device__ __forceinline__ void Pack(const float (&low)[4],
                                       const float (&high)[4], int step) {
    u32(&w)[4] = weights[step];
    w[0] = spec::ValueOperand::Pack(low[0], low[1]);
    w[1] = spec::ValueOperand::Pack(low[2], low[3]);
    w[2] = spec::ValueOperand::Pack(high[0], high[1]);
    w[3] = spec::ValueOperand::Pack(high[2], high[3]);
    if constexpr (Shape::kTwoPartWeights) {
      u32(&r)[4] = rest[step];
      r[0] = ops::NarrowingRest<spec::ValueOperand>(low[0], low[1], w[0]);
      r[1] = ops::NarrowingRest<spec::ValueOperand>(low[2], low[3], w[1]);
      r[2] = ops::NarrowingRest<spec::ValueOperand>(high[0], high[1], w[2]);
      r[3] = ops::NarrowingRest<spec::ValueOperand>(high[2], high[3], w[3]);
    }
  }

  // Around all tiles of a block warpgroup 1 passes the first turn, and 0 takes
  // the last.
  static __device__ __forceinline__ void WaitForTurn(int warpgroup) {
    arch::NamedSync(kTurnBarrier + warpgroup, ExtendRing::kConsumers);
  }
  static __device__ __forceinline__ void PassTurn(int warpgroup) {
    arch::NamedArrive(kTurnBarrier + 1 - warpgroup, ExtendRing::kConsumers);
  }
  // Attends the warpgroup's rows to the tiles of the work.
  // Scores of a tile are asked for ahead of the output of the one before it,
  // and weighed while that is under way.
  __device__ __forceinline__ void Attend() {
    if (work.tiles == 0) return;
    wild = false;
    if constexpr (Shape::kUniformInTerms) {
#pragma unroll
      for (int i = 0; i < ExtendState::kRows; ++i) wild |= state.Unit2(i) != 1;
      wild = arch::NamedAny(kConsumerBarrier + warpgroup,
                            ExtendRing::kGroupThreads, wild);
    }
    ExtendRing::Slot keys = {first_slot};
    arch::MbarrierWait(ring.Filled(keys), keys.Phase());
    WaitForTurn(warpgroup);
    arch::WgmmaBegin();
    AskForScores(keys);
    arch::WgmmaCommit();
    PassTurn(warpgroup);
    arch::WgmmaWait<0>(s);
#pragma unroll 1
    for (int tile = 0;; ++tile) {
      const ExtendRing::Slot values = {first_slot + 2 * tile + 1};
      // With images V's terms come with K's.
      if (!spec::kImages) {
        arch::MbarrierWait(ring.Filled(values), values.Phase());
      }
      Weigh(tile);
      if (spec::kImages) {
        arch::MbarrierWait(ring.Filled(values), values.Phase());
      }
      if (tile + 1 == work.tiles) break;
      keys = {first_slot + 2 * tile + 2};
      arch::MbarrierWait(ring.Filled(keys), keys.Phase());
      WaitForTurn(warpgroup);
      arch::WgmmaBegin();
      AskForScores(keys);
      arch::WgmmaCommit();
      AskForOutput(weights, values);
      arch::WgmmaCommit();
      PassTurn(warpgroup);
      if constexpr (kOnePass) {
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          SlotTerms::Load<KSide>(ring.Terms(keys), 2 * i, lane % 4, ahead[i]);
        }
      }
      arch::WgmmaWait<1>(s);
    }
    const ExtendRing::Slot last = {first_slot + 2 * work.tiles - 1};
    arch::WgmmaBegin();
    AskForOutput(weights, last);
    arch::WgmmaCommit();
    arch::WgmmaWait<0>(state.out[0]);
    arch::MbarrierArrive(ring.Free(last));
  }
};

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_CONSUMER_CUH_
