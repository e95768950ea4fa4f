// The end of a decode segment: the warps of a kv head merge their rows through
// shared memory; where other blocks share the unit the rows go to scratch, and
// the last of these blocks to arrive merges them all. No block waits.
//
//   scratch slot of a block: out [heads][kBlockM][kValueDim] f32, normalised,
//                            then lse [heads][kBlockM] f32, natural log
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

// Shared address of a warp's row in the exchange.
__device__ __forceinline__ u32 ExchangeRow(u32 shared, int warp, int row) {
  return shared + DecodeShape::kExchange +
         (warp * spec::kBlockM + row) * DecodeShape::kExchangeRowBytes;
}
inline constexpr int kExchangeFacts = DecodeShape::kRoundTiles * 64;

// Writes M tiles [kFirst, kFirst + kRoundTiles) of the warp's rows: pair
// m * 8 + g of a row is channels ChannelOfPair(...), + 1.
template <int kFirst>
__device__ __forceinline__ void WriteTiles(u32 shared, int warp, int g, int t,
                                           const DecodeState& state) {
  using Shape = DecodeShape;
#pragma unroll
  for (int r = 0; r < Shape::kRowTiles; ++r) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const u32 row = ExchangeRow(shared, warp, 8 * r + 2 * t + c);
#pragma unroll
      for (int m = 0; m < Shape::kRoundTiles; ++m) {
        if (kFirst + m >= Shape::kMTiles) break;
        U32x2 values;
        values.v[0] = arch::Bits(state.out[r][kFirst + m][c]);
        values.v[1] = arch::Bits(state.out[r][kFirst + m][2 + c]);
        arch::StoreShared(row + (m * 8 + g) * 8, values);
      }
      if (kFirst == 0 && g == 0) {
        const ops::SoftmaxRow& softmax = state.softmax[r][c];
        arch::StoreShared(row + kExchangeFacts, softmax.max2);
        arch::StoreShared(row + kExchangeFacts + 4, softmax.ref2);
        arch::StoreShared(row + kExchangeFacts + 8, softmax.sum);
      }
    }
  }
}

// The tiles of the round that begins at tile `first`: registers have no index
// that is known at run time only.
template <int kFirst>
__device__ __forceinline__ void WriteRound(int first, u32 shared, int warp,
                                           int g, int t,
                                           const DecodeState& state) {
  constexpr int kNext = kFirst + DecodeShape::kRoundTiles;
  if constexpr (kNext >= DecodeShape::kMTiles) {
    WriteTiles<kFirst>(shared, warp, g, t, state);
  } else if (first == kFirst) {
    WriteTiles<kFirst>(shared, warp, g, t, state);
  } else {
    WriteRound<kNext>(first, shared, warp, g, t, state);
  }
}

// First of the two channels of pair `pair` of M tiles `first` and on.
__device__ __forceinline__ int ChannelOfPair(int first, int pair) {
  using Order = DecodeShape::VOrder;
  constexpr int kPairs = Order::kLaneChannels / 2;
  const int m = first + pair / 8;
  return m / kPairs * Order::kRunChannels + pair % 8 * Order::kLaneChannels +
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

__device__ __forceinline__ int SlotFloats(int heads) {
  return heads * spec::kBlockM * (spec::kValueDim + 1);
}

// Two neighbouring channels of a final row.
__device__ __forceinline__ void StoreOut(u8* row, int channel, float x0,
                                         float x1) {
  constexpr int kWords = spec::OutElement::kBytes / 2;
  u32 words[kWords];
  spec::OutElement::FromF32x2(x0, x1, words);
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    arch::StoreGlobal(row + channel * spec::OutElement::kBytes + 4 * i,
                      words[i]);
  }
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

// Merges what the warps of this warp's kv head wrote in the round that begins
// at tile `first`, for every parts-th row from `part` on.
__device__ __forceinline__ void ReadRound(const AttentionArgs& args,
                                          const HeadSplit& split,
                                          const SegmentOutput& output,
                                          int first, u32 shared, int part,
                                          int lane) {
  using Shape = DecodeShape;
  const ops::Sequence& sequence = output.sequence;
  const float uniform = spec::OutUniform(args, sequence.kv_head);
  const auto row_of = [&](int i, int r) {
    return ExchangeRow(shared, output.head + i * split.heads, r);
  };
#pragma unroll 1
  for (int r = part; r < spec::kBlockM; r += split.parts) {
    const int row = output.row0 + r;
    if (row >= sequence.q_len * spec::kGroup) break;
    float top2 = ops::NegativeInfinity();
    float top_ref2 = ops::NegativeInfinity();
#pragma unroll 1
    for (int i = 0; i < split.parts; ++i) {
      const u32 facts = row_of(i, r) + kExchangeFacts;
      top2 = arch::Max(top2, arch::LoadShared<float>(facts));
      top_ref2 = arch::Max(top_ref2, arch::LoadShared<float>(facts + 4));
    }
    float sum = 0;
    float x[2] = {};
    constexpr int kPairs = Shape::kRoundTiles * 8;
    static_assert(kPairs <= 32);
    const bool mine = lane < kPairs && first + lane / 8 < Shape::kMTiles;
#pragma unroll 1
    for (int i = 0; i < split.parts; ++i) {
      const u32 from = row_of(i, r);
      const float max2 = arch::LoadShared<float>(from + kExchangeFacts);
      const float ref2 = arch::LoadShared<float>(from + kExchangeFacts + 4);
      const float part_sum = arch::LoadShared<float>(from + kExchangeFacts + 8);
      const bool seen = max2 != ops::NegativeInfinity();
      // Without a maximum the sum is 0, or NaN where every score was.
      sum += seen ? part_sum * arch::Exp2(max2 - top2) : part_sum;
      const float factor = seen ? arch::Exp2(ref2 - top_ref2) : 0.0f;
      if (mine) {
        const U32x2 values = arch::LoadShared<U32x2>(from + lane * 8);
        x[0] = arch::Fma(arch::FromBits(values.v[0]), factor, x[0]);
        x[1] = arch::Fma(arch::FromBits(values.v[1]), factor, x[1]);
      }
    }
    const float sink2 =
        output.slot == nullptr
            ? ops::SinkOf<spec::kGroup, spec::kSinks>(args, sequence, row)
            : ops::NegativeInfinity();
    const ops::SoftmaxResult result =
        ops::FinishRow(top2, top_ref2, sum, sink2);
    const float factor = result.out_factor * uniform;
    const int channel = ChannelOfPair(first, lane);
    x[0] *= factor;
    x[1] *= factor;
    if constexpr (VSide::kChannelScale) {
      if (mine) {
        const float* scales = formats::GivenChannelScales<spec::kValueDim>(
                                  args.v, sequence.kv_head) +
                              channel;
        x[0] *= arch::LoadGlobal<float>(scales);
        x[1] *= arch::LoadGlobal<float>(scales + 1);
      }
    }
    const int slot_row = output.head * spec::kBlockM + r;
    if (mine) {
      if (output.slot != nullptr) {
        U32x2 values;
        values.v[0] = arch::Bits(x[0]);
        values.v[1] = arch::Bits(x[1]);
        arch::StoreGlobal(output.slot + slot_row * spec::kValueDim + channel,
                          values);
      } else {
        StoreOut(OutRow(args, sequence, row), channel, x[0], x[1]);
      }
    }
    if (first == 0 && lane == 0) {
      if (output.slot != nullptr) {
        arch::StoreGlobal(output.slot +
                              output.heads * spec::kBlockM * spec::kValueDim +
                              slot_row,
                          result.lse);
      } else {
        StoreLse(args, sequence, row, result.lse);
      }
    }
  }
}

// The block's consumer warps.
__device__ __forceinline__ void ConsumerSync() {
  arch::PartSync<DecodeShape::kConsumerThreads>();
}

// One warp alone has its rows; several meet at a barrier.
__device__ __forceinline__ void ExchangeSync(const HeadSplit& split) {
  if (split.parts == 1) {
    arch::WarpSync();
  } else {
    ConsumerSync();
  }
}

__device__ __forceinline__ void ExchangeRounds(const AttentionArgs& args,
                                               const HeadSplit& split,
                                               const SegmentOutput& output,
                                               u32 shared, int warp, int lane,
                                               const DecodeState& state) {
#pragma unroll 1
  for (int first = 0; first < DecodeShape::kMTiles;
       first += DecodeShape::kRoundTiles) {
    ExchangeSync(split);
    WriteRound<0>(first, shared, warp, lane / 4, lane % 4, state);
    ExchangeSync(split);
    ReadRound(args, split, output, first, shared, split.Part(warp), lane);
  }
}

// Combines the rows of a unit that blocks first_block .. last_block wrote to
// their slots: out = sum_i exp(lse_i - lse) * out_i, with the sink once.
__device__ __forceinline__ void MergeSlots(const DecodeArgs& args,
                                           const HeadSplit& split,
                                           const SegmentOutput& output,
                                           int first_head, i64 first_block,
                                           int count, int warp, int lane) {
  const int slot_floats = SlotFloats(split.heads);
  const float* const first_slot = args.partials + 2 * first_block * slot_floats;
  const auto slot_of = [&](int i) {
    return first_slot + static_cast<i64>(i == 0 ? 1 : 2 * i) * slot_floats;
  };
  const int lse_offset = split.heads * spec::kBlockM * spec::kValueDim;
  ops::Sequence sequence = output.sequence;
#pragma unroll 1
  for (int index = warp; index < split.heads * spec::kBlockM;
       index += spec::kWarps) {
    const int row = output.row0 + index % spec::kBlockM;
    if (row >= sequence.q_len * spec::kGroup) continue;
    sequence.kv_head = first_head + index / spec::kBlockM;
    const auto lse_of = [&](int i) {
      return arch::LoadGlobal<float>(slot_of(i) + lse_offset + index);
    };
    const float sink2 =
        ops::SinkOf<spec::kGroup, spec::kSinks>(args, sequence, row);
    float top2 = sink2;
#pragma unroll 1
    for (int first = 0; first < count; first += 32) {
      if (first + lane < count) {
        top2 = arch::MaxNan(top2, lse_of(first + lane) * ops::kLog2E);
      }
    }
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
      top2 = arch::MaxNan(top2, arch::ShuffleXor(top2, mask));
    }
    const bool empty = top2 == ops::NegativeInfinity();
    if (empty) top2 = 0;  // all weights are 0
    constexpr int kLanes = spec::kValueDim / 4 < 32 ? spec::kValueDim / 4 : 32;
    u8* const out = OutRow(args, sequence, row);
#pragma unroll 1
    for (int channel = 4 * lane; channel - 4 * lane < spec::kValueDim;
         channel += 4 * kLanes) {
      const bool mine = lane < kLanes && channel < spec::kValueDim;
      float x[4] = {};
      float total = 0;
#pragma unroll 1
      for (int first = 0; first < count; first += 32) {
        float weight = 0;
        if (first + lane < count) {
          weight =
              arch::Exp2(arch::Fma(lse_of(first + lane), ops::kLog2E, -top2));
        }
        total += weight;
        const int parts = count - first < 32 ? count - first : 32;
        constexpr int kAhead = 4;  // slots that are read at once
#pragma unroll 1
        for (int i = 0; i < parts; i += kAhead) {
          float w[kAhead];  // 0 past the last part
          U32x4 values[kAhead];
#pragma unroll
          for (int k = 0; k < kAhead; ++k) {
            w[k] = arch::ShuffleFrom(weight, i + k);
            values[k] = {};
            if (mine && w[k] != 0) {
              values[k] = arch::LoadGlobal<U32x4>(
                  slot_of(first + i + k) + index * spec::kValueDim + channel);
            }
          }
#pragma unroll
          for (int k = 0; k < kAhead; ++k) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              const float sum =
                  arch::Fma(arch::FromBits(values[k].v[j]), w[k], x[j]);
              x[j] = w[k] == 0 ? x[j] : sum;  // an empty part: nothing was read
            }
          }
        }
      }
#pragma unroll
      for (int mask = 1; mask < 32; mask *= 2) {
        total += arch::ShuffleXor(total, mask);
      }
      total += arch::Exp2(sink2 - top2);
      const float total2 = arch::Log2(total);
      if (channel == 0) {
        StoreLse(args, sequence, row, (top2 + total2) * ops::kLn2);
      }
      if (!mine) continue;
      // Of an empty row x is 0 and the total, too.
      const float inverse = empty ? 0.0f : arch::Exp2(-total2);
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] *= inverse;
      StoreOut(out, channel, x[0], x[1]);
      StoreOut(out, channel + 2, x[2], x[3]);
    }
  }
}

// Writes the rows of a segment that every warp of the block has attended to.
__device__ __forceinline__ void FinishSegment(
    const DecodeArgs& args, const HeadSplit& split, const DecodePlan& plan,
    const SegmentWalk& segment, const ops::Sequence& sequence, u32 shared,
    int warp, int lane, DecodeState& state) {
  SegmentOutput output = {sequence, segment.FirstRow(split), split.Head(warp),
                          nullptr, split.heads};
  const bool whole = segment.WholeUnit();
  if (!whole) {
    const i64 slot = 2 * arch::BlockIndex() + (segment.step == 0 ? 1 : 0);
    output.slot = args.partials + slot * SlotFloats(split.heads);
  }
  SettleRows(state);
  ExchangeRounds(args, split, output, shared, warp, lane, state);
  if (whole) return;

  // What the unit has before this segment ends where this block begins, and
  // what it has behind begins where this block ends.
  const int chunk =
      plan.chunk < segment.steps ? static_cast<int>(plan.chunk) : segment.steps;
  const int before = (segment.step + chunk - 1) / chunk;
  const int behind = (segment.steps - segment.EndStep() + chunk - 1) / chunk;
  const i64 first_block = arch::BlockIndex() - before;
  const int count = before + 1 + behind;
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
