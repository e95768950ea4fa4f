// The end of a decode segment: the warps of a kv head merge their rows through
// shared memory; where other blocks share the unit the rows go to scratch, and
// the last of these blocks to arrive merges them all. No block waits.
//
// Rows are exchanged as warps hold them: part (m, c) of a tile of 8 rows are,
// for each lane, two neighbouring channels of row 2t + c.
//
//   scratch slot of a block: out [heads][row tiles][m][c][lane] f32 pairs,
//                            normalised, then lse [heads][kBlockM] f32, natural
//                            log
//   slot 2 * block           of the unit that the block continues
//   slot 2 * block + 1       of the unit that the block begins
#ifndef KVFORGE_TEMPLATES_KERNELS_DECODE_OUTPUT_CUH_
#define KVFORGE_TEMPLATES_KERNELS_DECODE_OUTPUT_CUH_

#include "kernels/decode/plan.cuh"

namespace kvforge::kernels {

// Gives the warp's rows one reference and one unit.
__device__ __forceinline__ void SettleRows(DecodeState& state) {
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
      float& sum = state.softmax[r][c].sum;
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) {
        sum += arch::ShuffleXor(sum, mask);
      }
    }
  }
}

// Shared addresses in the exchange, of what `warp` holds of tile `r` of 8 rows:
// of M tile m of the round and c, a pair of channels of row 2t + c for each
// lane (g, t); then each row's max2, ref2 and sum.
__device__ __forceinline__ u32 ExchangeTile(u32 shared, int warp, int r) {
  return shared + DecodeShape::kExchange +
         (warp * DecodeShape::kRowTiles + r) * DecodeShape::kExchangeTileBytes;
}
__device__ __forceinline__ u32 ExchangePair(u32 tile, int m, int c, int lane) {
  return tile +
         (c * DecodeShape::kRoundTiles + m) * DecodeShape::kExchangePitch +
         lane * 8;
}
__device__ __forceinline__ u32 ExchangeFacts(u32 tile, int row) {
  return tile + 2 * DecodeShape::kRoundTiles * DecodeShape::kExchangePitch +
         row * 16;
}

// First of the two channels of M tile m that lane (g, t) holds.
__device__ __forceinline__ int ChannelOf(int m, int g) {
  using Order = DecodeShape::VOrder;
  constexpr int kPairs = Order::kLaneChannels / 2;
  return m / kPairs * Order::kRunChannels + g * Order::kLaneChannels +
         m % kPairs * 2;
}

// Where a segment's rows go.
struct SegmentOutput {
  ops::Sequence sequence;
  int row0;     // of the segment's tile of query rows
  int head;     // of the unit, for this warp
  float* slot;  // null: the rows are final
  int heads;    // of the unit
};

__device__ __forceinline__ i64 SlotFloats(int heads) {
  return static_cast<i64>(heads) * spec::kBlockM * (spec::kValueDim + 1);
}
// Floats from a slot's start to the lse of a row of a head.
__device__ __forceinline__ int SlotLse(int heads, int head, int row) {
  return heads * (spec::kBlockM * spec::kValueDim) + head * spec::kBlockM + row;
}

// kCount neighbouring channels of a row in scratch or, of the final one, of
// out.
template <int kCount>
__device__ __forceinline__ void StoreScratch(float* row, int channel,
                                             const float (&x)[kCount]) {
  u32 words[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) words[i] = arch::Bits(x[i]);
  ops::StoreBytes<4 * kCount>(reinterpret_cast<u8*>(row + channel), 16, words);
}
template <int kCount>
__device__ __forceinline__ void StoreOut(u8* row, int channel,
                                         const float (&x)[kCount]) {
  constexpr int kPairWords = spec::OutElement::kBytes / 2;
  constexpr int kBytes = kCount * spec::OutElement::kBytes;
  u32 words[kBytes / 4];
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    u32 pair[kPairWords];
    spec::OutElement::FromF32x2(x[2 * i], x[2 * i + 1], pair);
#pragma unroll
    for (int j = 0; j < kPairWords; ++j) words[i * kPairWords + j] = pair[j];
  }
  ops::StoreBytes<kBytes>(row + channel * spec::OutElement::kBytes, 16, words);
}

__device__ __forceinline__ u8* OutRow(const AttentionArgs& args,
                                      const ops::Sequence& sequence, int row) {
  return args.out +
         ops::TokenOf<spec::kGroup>(sequence, row) * args.out_token_stride +
         ops::HeadOf<spec::kGroup>(sequence, row) * args.out_head_stride;
}

__device__ __forceinline__ void StoreLse(const AttentionArgs& args,
                                         const ops::Sequence& sequence, int row,
                                         float lse) {
  if (args.lse == nullptr) return;
  arch::StoreGlobal(
      args.lse +
          ops::TokenOf<spec::kGroup>(sequence, row) * args.lse_token_stride +
          ops::HeadOf<spec::kGroup>(sequence, row),
      lse);
}

// The block's consumer warps.
__device__ __forceinline__ void ConsumerSync() {
  arch::PartSync<DecodeShape::kConsumerThreads>();
}

// The rows of a warp that has its kv head to itself: a lane's channels lie side
// by side.
__device__ __forceinline__ void StoreOwnRows(const AttentionArgs& args,
                                             const SegmentOutput& output,
                                             int lane,
                                             const DecodeState& state) {
  using Shape = DecodeShape;
  constexpr int kChannels = Shape::VOrder::kLaneChannels;
  const ops::Sequence& sequence = output.sequence;
  const float uniform = spec::OutUniform(args, sequence.kv_head);
#pragma unroll
  for (int r = 0; r < Shape::kRowTiles; ++r) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const ops::SoftmaxRow& softmax = state.softmax[r][c];
      const int tile_row = 8 * r + 2 * (lane % 4) + c;
      const int row = output.row0 + tile_row;
      const bool exists = row < sequence.q_len * spec::kGroup;
      const float sink2 =
          output.slot == nullptr && exists
              ? ops::SinkOf<spec::kGroup, spec::kSinks>(args, sequence, row)
              : ops::NegativeInfinity();
      const ops::SoftmaxResult result =
          ops::FinishRow(softmax.max2, softmax.ref2, softmax.sum, sink2);
      const float factor = result.out_factor * uniform;
      u8* const out = OutRow(args, sequence, row);
#pragma unroll
      for (int run = 0; run < Shape::VOrder::kRuns; ++run) {
        const int channel = ChannelOf(run * kChannels / 2, lane / 4);
        float x[kChannels];
#pragma unroll
        for (int i = 0; i < kChannels; ++i) {
          x[i] = state.out[r][run * kChannels / 2 + i / 2][i % 2 * 2 + c];
          x[i] *= factor;
          if constexpr (VSide::kChannelScale) {
            x[i] *= arch::LoadGlobal<float>(
                formats::GivenChannelScales<spec::kValueDim>(args.v,
                                                             sequence.kv_head) +
                channel + i);
          }
        }
        if (output.slot != nullptr) {
          const int slot_row = output.head * spec::kBlockM + tile_row;
          StoreScratch(output.slot + slot_row * spec::kValueDim, channel, x);
        } else if (exists) {
          StoreOut(out, channel, x);
        }
      }
      if (lane < 4) {
        if (output.slot != nullptr) {
          arch::StoreGlobal(
              output.slot + SlotLse(output.heads, output.head, tile_row),
              result.lse);
        } else if (exists) {
          StoreLse(args, sequence, row, result.lse);
        }
      }
    }
  }
}

// Writes M tiles [kFirst, kFirst + kRoundTiles) of the warp's rows.
template <int kFirst>
__device__ __forceinline__ void WriteRound(u32 shared, int warp, int lane,
                                           const DecodeState& state) {
  using Shape = DecodeShape;
#pragma unroll
  for (int r = 0; r < Shape::kRowTiles; ++r) {
    const u32 tile = ExchangeTile(shared, warp, r);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
#pragma unroll
      for (int m = 0; m < Shape::kRoundTiles; ++m) {
        if (kFirst + m >= Shape::kMTiles) break;
        U32x2 values;
        values.v[0] = arch::Bits(state.out[r][kFirst + m][c]);
        values.v[1] = arch::Bits(state.out[r][kFirst + m][2 + c]);
        arch::StoreShared(ExchangePair(tile, m, c, lane), values);
      }
      if (kFirst == 0 && lane < 4) {
        const ops::SoftmaxRow& row = state.softmax[r][c];
        U32x4 facts;
        facts.v[0] = arch::Bits(row.max2);
        facts.v[1] = arch::Bits(row.ref2);
        facts.v[2] = arch::Bits(row.sum);
        facts.v[3] = 0;
        arch::StoreShared(ExchangeFacts(tile, 2 * lane + c), facts);
      }
    }
  }
}

// What a lane knows of the rows that the warps of its kv head merge: lane l of
// row l % 8 of each tile, and of the warps l / 8, l / 8 + 4 and so on.
struct RowFactors {
  static constexpr int kFactors = (spec::kWarps + 3) / 4;
  // What a warp's partial row is multiplied by.
  float factor[DecodeShape::kRowTiles][kFactors];
};

// Works them out from what the warps wrote, and stores the rows' lse.
__device__ __forceinline__ RowFactors JoinRows(const AttentionArgs& args,
                                               const HeadSplit& split,
                                               const SegmentOutput& output,
                                               u32 shared, int part, int lane) {
  constexpr int kFactors = RowFactors::kFactors;
  RowFactors rows;
  const ops::Sequence& sequence = output.sequence;
  const float uniform = spec::OutUniform(args, sequence.kv_head);
  const int end = sequence.q_len * spec::kGroup - output.row0;
#pragma unroll
  for (int r = 0; r < DecodeShape::kRowTiles; ++r) {
    const int row = 8 * r + lane % 8;
    float max2[kFactors], ref2[kFactors], sums[kFactors];
    float top2 = ops::NegativeInfinity();
    float top_ref2 = ops::NegativeInfinity();
#pragma unroll
    for (int k = 0; k < kFactors; ++k) {
      const int i = lane / 8 + 4 * k;
      max2[k] = ref2[k] = ops::NegativeInfinity();
      sums[k] = 0;
      if (i < split.parts) {
        const u32 tile = ExchangeTile(shared, output.head + i * split.heads, r);
        const U32x4 facts =
            arch::LoadShared<U32x4>(ExchangeFacts(tile, lane % 8));
        max2[k] = arch::FromBits(facts.v[0]);
        ref2[k] = arch::FromBits(facts.v[1]);
        sums[k] = arch::FromBits(facts.v[2]);
      }
      top2 = arch::Max(top2, max2[k]);
      top_ref2 = arch::Max(top_ref2, ref2[k]);
    }
#pragma unroll
    for (int mask = 8; mask < 32; mask *= 2) {
      top2 = arch::Max(top2, arch::ShuffleXor(top2, mask));
      top_ref2 = arch::Max(top_ref2, arch::ShuffleXor(top_ref2, mask));
    }
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kFactors; ++k) {
      const bool seen = max2[k] != ops::NegativeInfinity();
      // Without a maximum the sum is 0, or NaN where every score was.
      sum += seen ? sums[k] * arch::Exp2(max2[k] - top2) : sums[k];
      rows.factor[r][k] = seen ? arch::Exp2(ref2[k] - top_ref2) : 0.0f;
    }
#pragma unroll
    for (int mask = 8; mask < 32; mask *= 2) {
      sum += arch::ShuffleXor(sum, mask);
    }
    const bool final_row = output.slot == nullptr && row < end;
    const float sink2 = final_row ? ops::SinkOf<spec::kGroup, spec::kSinks>(
                                        args, sequence, output.row0 + row)
                                  : ops::NegativeInfinity();
    const ops::SoftmaxResult result =
        ops::FinishRow(top2, top_ref2, sum, sink2);
#pragma unroll
    for (int k = 0; k < kFactors; ++k) {
      rows.factor[r][k] *= result.out_factor * uniform;
    }
    if (part == 0 && lane < 8) {
      if (output.slot != nullptr) {
        arch::StoreGlobal(output.slot + SlotLse(output.heads, output.head, row),
                          result.lse);
      } else if (final_row) {
        StoreLse(args, sequence, output.row0 + row, result.lse);
      }
    }
  }
  return rows;
}

// Merges M tiles first .. + 3 of what the warps of this warp's kv head wrote,
// of every parts-th row from `part` on: lane (g, m) a pair of channels.
__device__ __forceinline__ void ReadRound(const AttentionArgs& args,
                                          const HeadSplit& split,
                                          const SegmentOutput& output,
                                          const RowFactors& factors, int first,
                                          u32 shared, int part, int lane) {
  using Shape = DecodeShape;
  static_assert(Shape::kRoundTiles == 4);
  const ops::Sequence& sequence = output.sequence;
  const int g = lane / 4;
  const int m = lane % 4;
  const bool mine = first + m < Shape::kMTiles;
  const int channel = ChannelOf(first + m, g);
  const int end = sequence.q_len * spec::kGroup - output.row0;
  float channel_scale[2] = {1.0f, 1.0f};
  if constexpr (VSide::kChannelScale) {
    if (mine) {
      const float* scales = formats::GivenChannelScales<spec::kValueDim>(
                                args.v, sequence.kv_head) +
                            channel;
      channel_scale[0] = arch::LoadGlobal<float>(scales);
      channel_scale[1] = arch::LoadGlobal<float>(scales + 1);
    }
  }
#pragma unroll
  for (int r = 0; r < Shape::kRowTiles; ++r) {
#pragma unroll 1
    for (int row = part; row < 8; row += split.parts) {
      float x[2] = {};
#pragma unroll
      for (int k = 0; k < RowFactors::kFactors; ++k) {
        if (4 * k >= split.parts) break;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int i = 4 * k + j;
          const float factor =
              arch::ShuffleFrom(factors.factor[r][k], 8 * j + row);
          if (i < split.parts) {
            const u32 tile =
                ExchangeTile(shared, output.head + i * split.heads, r);
            const U32x2 values = arch::LoadShared<U32x2>(
                ExchangePair(tile, m, row % 2, 4 * g + row / 2));
            x[0] = arch::Fma(arch::FromBits(values.v[0]), factor, x[0]);
            x[1] = arch::Fma(arch::FromBits(values.v[1]), factor, x[1]);
          }
        }
      }
      if constexpr (VSide::kChannelScale) {
        x[0] *= channel_scale[0];
        x[1] *= channel_scale[1];
      }
      const int tile_row = 8 * r + row;
      if (!mine || tile_row >= end) continue;
      if (output.slot != nullptr) {
        const int slot_row = output.head * spec::kBlockM + tile_row;
        StoreScratch(output.slot + slot_row * spec::kValueDim, channel, x);
      } else {
        StoreOut(OutRow(args, sequence, output.row0 + tile_row), channel, x);
      }
    }
  }
}

// Writes the warp's M tiles of round `round`, a constant each.
template <int kFirst = 0>
__device__ __forceinline__ void WriteRoundOf(int round, u32 shared, int warp,
                                             int lane,
                                             const DecodeState& state) {
  if constexpr (kFirst < DecodeShape::kMTiles) {
    if (round == kFirst / DecodeShape::kRoundTiles) {
      WriteRound<kFirst>(shared, warp, lane, state);
    } else {
      WriteRoundOf<kFirst + DecodeShape::kRoundTiles>(round, shared, warp, lane,
                                                      state);
    }
  }
}

__device__ __forceinline__ void ExchangeRows(const AttentionArgs& args,
                                             const HeadSplit& split,
                                             const SegmentOutput& output,
                                             u32 shared, int warp, int lane,
                                             const DecodeState& state) {
  RowFactors factors;
#pragma unroll 1
  for (int round = 0; round * DecodeShape::kRoundTiles < DecodeShape::kMTiles;
       ++round) {
    ConsumerSync();
    WriteRoundOf(round, shared, warp, lane, state);
    ConsumerSync();
    if (round == 0) {
      factors = JoinRows(args, split, output, shared, split.Part(warp), lane);
    }
    ReadRound(args, split, output, factors, round * DecodeShape::kRoundTiles,
              shared, split.Part(warp), lane);
  }
}

// Combines the rows of a unit that blocks first_block .. + count - 1 wrote to
// their slots: out = sum_i exp(lse_i - lse) * out_i, with the sink once. The
// slots are read once, some at a time, against the largest lse so far.
__device__ __forceinline__ void MergeSlots(const DecodeArgs& args,
                                           const HeadSplit& split,
                                           const SegmentOutput& output,
                                           int first_head, i64 first_block,
                                           int count, int warp, int lane) {
  constexpr int kAtOnce = 8;
  constexpr int kLanes = spec::kValueDim / 4 < 32 ? spec::kValueDim / 4 : 32;
  constexpr int kParts = (spec::kValueDim + 127) / 128;  // of a row
  const i64 slot_floats = SlotFloats(split.heads);
  const float* const first_slot =
      args.partials + (2 * first_block + 1) * slot_floats;
  const auto slot_of = [&](int i) {
    // Only the first block begins the unit.
    return i == 0 ? first_slot : first_slot + (2 * i - 1) * slot_floats;
  };
  ops::Sequence sequence = output.sequence;
#pragma unroll 1
  for (int item = warp; item < split.heads * spec::kBlockM * kParts;
       item += spec::kWarps) {
    const int index = item / kParts;  // (head, row)
    const int tile_row = index % spec::kBlockM;
    const int head = index / spec::kBlockM;
    const int row = output.row0 + tile_row;
    if (row >= sequence.q_len * spec::kGroup) continue;
    sequence.kv_head = first_head + head;
    const int channel = item % kParts * 128 + 4 * lane;
    const bool mine = lane < kLanes && channel < spec::kValueDim;
    float top2 = ops::SinkOf<spec::kGroup, spec::kSinks>(args, sequence, row);
    float total = top2 == ops::NegativeInfinity() ? 0.0f : 1.0f;
    float x[4] = {};
#pragma unroll 1
    for (int first = 0; first < count; first += kAtOnce) {
      float lse[kAtOnce];
      U32x4 values[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        lse[i] = ops::NegativeInfinity();
        values[i] = {};
        if (first + i < count) {
          const float* slot = slot_of(first + i);
          lse[i] = arch::LoadGlobal<float>(
              slot + SlotLse(split.heads, head, tile_row));
          if (mine) {
            values[i] = arch::LoadGlobal<U32x4>(slot + index * spec::kValueDim +
                                                channel);
          }
        }
      }
      float new_top2 = top2;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        new_top2 = arch::MaxNan(new_top2, lse[i] * ops::kLog2E);
      }
      if (new_top2 == ops::NegativeInfinity()) continue;
      const float rescale = arch::Exp2(top2 - new_top2);
      top2 = new_top2;
      total *= rescale;
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] *= rescale;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const float weight = arch::Exp2(arch::Fma(lse[i], ops::kLog2E, -top2));
        total += weight;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float more =
              arch::Fma(arch::FromBits(values[i].v[j]), weight, x[j]);
          x[j] = weight == 0 ? x[j] : more;  // an empty part may hold anything
        }
      }
    }
    // Divides in base 2: the logarithm is wanted besides. An empty row has x 0.
    const bool empty = top2 == ops::NegativeInfinity();
    const float total2 = empty ? 0.0f : arch::Log2(total);
    if (mine) {
      const float inverse = arch::Exp2(-total2);
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] *= inverse;
      u8* const out = OutRow(args, sequence, row);
      StoreOut(out, channel, x);
    }
    if (item % kParts == 0 && lane == 0) {
      StoreLse(args, sequence, row, (top2 + total2) * ops::kLn2);
    }
  }
}

// Writes the rows of a segment that every warp of the block has attended to.
__device__ __forceinline__ void FinishSegment(const DecodeArgs& args,
                                              const HeadSplit& split, i64 chunk,
                                              const SegmentWalk& segment,
                                              const ops::Sequence& sequence,
                                              u32 shared, int warp, int lane,
                                              DecodeState& state) {
  SegmentOutput output = {sequence, segment.FirstRow(split), split.Head(warp),
                          nullptr, split.heads};
  const bool whole = segment.WholeUnit();
  if (!whole) {
    const i64 slot = 2 * arch::BlockIndex() + (segment.step == 0 ? 1 : 0);
    output.slot = args.partials + slot * SlotFloats(split.heads);
  }
  SettleRows(state);
  if (split.parts == 1) {
    StoreOwnRows(args, output, lane, state);
  } else {
    ExchangeRows(args, split, output, shared, warp, lane, state);
  }
  if (whole) return;

  const i64 begin = segment.position - segment.step;  // of the unit
  const i64 first_block = Divide(begin, chunk);
  const i64 last_block = Divide(begin + segment.steps - 1, chunk);
  const int count = static_cast<int>(last_block - first_block + 1);
  const u32 arrivals = shared + DecodeShape::kArrivals;
  unsigned* const counter = args.arrivals + first_block;
  ConsumerSync();
  if (warp == 0 && lane == 0) {
    arch::StoreShared(arrivals, arch::AddGlobal(counter, 1u));
  }
  ConsumerSync();
  if (arch::LoadShared<u32>(arrivals) + 1 != static_cast<u32>(count)) return;
  MergeSlots(args, split, output, sequence.kv_head - output.head, first_block,
             count, warp, lane);
  if (warp == 0 && lane == 0) arch::StoreGlobal<u32>(counter, 0);
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_DECODE_OUTPUT_CUH_
