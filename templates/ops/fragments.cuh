// From codes in shared memory to operands of m16n8k16, without a detour.
//
// The order of channels inside a dot's reduction, and of V's channels among the
// product's rows or columns, is free. It is chosen so that a lane reads
// neighbouring codes; lane = 4 * g + t as in the PTX fragment layouts.
//
//   K: step s of a dot gives lane (g, t) of key g the four channels
//      ChannelOf(s, t) + Offset(i); the first two are the fragment's k = 2t,
//      2t + 1, the last two its k = 2t + 8, 2t + 9. Query rows use the same
//      order. They are neighbours, of 4-bit codes in the order 0, 2, 1, 3: two
//      low nibbles, then two high ones.
//   V: lane (g, t) holds channels c(g) .. of keys 2t, 2t+1, 2t+8, 2t+9; a pair
//      of operands is one channel of two neighbouring keys.
#ifndef KVFORGE_TEMPLATES_OPS_FRAGMENTS_CUH_
#define KVFORGE_TEMPLATES_OPS_FRAGMENTS_CUH_

#include "ops/access.cuh"
#include "ops/key_tile.cuh"

namespace kvforge::ops {

// Largest of `first`, first / 2, ... that divides `total`.
__device__ constexpr int LargestDivisor(int total, int first) {
  while (total % first != 0) first /= 2;
  return first;
}

// Channels of K as lanes read them. Where block scales are factors of partial
// dots a run is one block.
template <class Side, int kDim>
struct ChannelOrder {
  static constexpr int kCodeBits = Side::kCodeBits;
  // Neighbouring bytes and channels of one lane; four lanes share a run.
  static constexpr int kLaneBytes =
      kBlockFactors<Side> ? Side::kBlock * kCodeBits / 8 / 4
                          : LargestDivisor(kDim * kCodeBits / 8 / 4, 32);
  static constexpr int kLaneChannels = kLaneBytes * 8 / kCodeBits;
  static constexpr int kRunChannels = 4 * kLaneChannels;
  static constexpr int kRuns = kDim / kRunChannels;
  static constexpr int kStepsPerRun = kLaneChannels / 4;
  static constexpr int kSteps = kDim / 16;
  static_assert(kLaneChannels % 4 == 0);

  // Channels between the two of a pair, where they are not neighbours.
  static constexpr int kApart = kCodeBits == 4 ? 2 : 0;

  static __device__ __forceinline__ constexpr int Offset(int i) {
    return kApart == 0 ? i : i / 2 + i % 2 * kApart;
  }
  static __device__ __forceinline__ constexpr int ChannelOf(int step, int t) {
    return step / kStepsPerRun * kRunChannels + t * kLaneChannels +
           step % kStepsPerRun * 4;
  }
};

// Eight 4-bit codes in a word: operand pairs of the low nibbles of bytes
// 2 * half and 2 * half + 1, and of the high ones.
template <class Side>
__device__ __forceinline__ void DecodeNibbles(u32 word, int half,
                                              u32 block_scales, u32& low,
                                              u32& high) {
  u32 pairs[2];
  Side::Decode4(word, 0, block_scales, pairs);
  low = pairs[half];
  Side::Decode4(word, 1, block_scales, pairs);
  high = pairs[half];
}

// Part of one run of one key's channels, as a lane holds it: 16 bytes of codes,
// or the run where that is less.
template <class Side, int kDim>
struct KeyRun {
  using Group = KeyGroup<Side, kDim>;
  using Order = ChannelOrder<Side, kDim>;
  static constexpr int kPartBytes =
      Order::kLaneBytes < 16 ? Order::kLaneBytes : 16;
  static constexpr int kParts = Order::kLaneBytes / kPartBytes;  // of a run
  static constexpr int kSteps = Order::kStepsPerRun / kParts;    // of a part
  static constexpr int kWords = (kPartBytes + 3) / 4;
  // Block scales of the part's channels where the operand takes them in.
  static constexpr int kChannels = kPartBytes * 8 / Side::kCodeBits;
  static constexpr int kScales =
      !Side::kBlockInOperand || kChannels <= Side::kBlock
          ? 1
          : kChannels / (Side::kBlock > 0 ? Side::kBlock : 1);
  u32 words[kWords];
  u32 scale_codes[(kScales + 3) / 4];

  __device__ __forceinline__ void Load(GroupPlace group, int key, int run,
                                       int part, int t) {
    constexpr int kRunBytes = 4 * Order::kLaneBytes;
    static_assert(Group::kLineBytes == 0 || Group::kLineBytes % kRunBytes == 0);
    LoadSharedBytes<kPartBytes>(
        group.codes + Group::Offset(key, t * Order::kLaneBytes,
                                    run * kRunBytes + part * kPartBytes),
        words);
    if constexpr (Side::kBlockInOperand) {
      const int channel = run * Order::kRunChannels + t * Order::kLaneChannels +
                          part * kChannels;
      LoadSharedBytes<kScales>(
          group.block_scales + key * group.block_pitch + channel / Side::kBlock,
          scale_codes);
    }
  }
  // A pair of the scale of block `block` of the part. Two are converted at
  // once.
  __device__ __forceinline__ u32 BlockScales(int block) const {
    const u32 codes = scale_codes[block / 4] >> (block % 4 / 2 * 16);
    const u32 pair = Side::BlockScalePair(codes & 0xffu,
                                          kScales > 1 ? codes >> 8 & 0xffu : 0);
    return arch::BothHalves(block % 2 == 0 ? static_cast<u16>(pair)
                                           : arch::UpperHalf(pair));
  }
  // Operands of step `i` of the part.
  __device__ __forceinline__ void Decode(int i, u32 (&out)[2]) const {
    u32 block_scales = 0;
    if constexpr (Side::kBlockInOperand) {
      block_scales = BlockScales(i * 4 / Side::kBlock);
    }
    if constexpr (Side::kCodeBits == 16) {
      Side::Decode4(words[2 * i], words[2 * i + 1], block_scales, out);
    } else if constexpr (Side::kCodeBits == 8) {
      Side::Decode4(words[i], 0, block_scales, out);
    } else {
      DecodeNibbles<Side>(words[i / 2], i % 2, block_scales, out[0], out[1]);
    }
  }
};

// Bytes 2 * i and 2 * i + 1 of keys a and b, in the order a, b, a, b.
__device__ __forceinline__ u32 ZipBytes(const u32* a, const u32* b, int i) {
  return arch::BytePermute(a[i / 2], b[i / 2], i % 2 == 0 ? 0x5140 : 0x7362);
}

// Channels of V as lanes read them, 16 bytes at most. Where block scales are
// factors of weights a run is one block.
template <class Side, int kDim>
struct ValueOrder {
  static constexpr int kLaneChannels =
      kBlockFactors<Side>
          ? Side::kBlock / 8
          : LargestDivisor(kDim / 8, Side::kCodeBits == 16 ? 8 : 16);
  static constexpr int kLaneBytes = kLaneChannels * Side::kCodeBits / 8;
  static constexpr int kRunChannels = 8 * kLaneChannels;
  static constexpr int kRuns = kDim / kRunChannels;
  static_assert(kLaneChannels >= 2);
};

// One run of V's channels for a group of 16 keys, as operands:
// pairs[c][0] are keys 2t, 2t+1 of the lane's channel c, pairs[c][1] keys
// 2t+8, 2t+9.
template <class Side, int kDim>
struct ValueRun {
  using Group = KeyGroup<Side, kDim>;
  using Order = ValueOrder<Side, kDim>;
  static constexpr int kWords = (Order::kLaneBytes + 3) / 4;
  u32 words[4][kWords];
  u32 block_scales[2] = {0, 0};

  __device__ __forceinline__ void Load(GroupPlace group, int run, int g,
                                       int t) {
    constexpr int kRunBytes = 8 * Order::kLaneBytes;
    static_assert(Group::kLineBytes == 0 || Group::kLineBytes % kRunBytes == 0);
    u32 scale_codes[4] = {0, 0, 0, 0};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int key = 2 * t + k % 2 + k / 2 * 8;
      LoadSharedBytes<Order::kLaneBytes>(
          group.codes +
              Group::Offset(key, g * Order::kLaneBytes, run * kRunBytes),
          words[k]);
      if constexpr (Side::kBlockInOperand) {
        const int channel = (run * 8 + g) * Order::kLaneChannels;
        scale_codes[k] =
            arch::LoadShared<u8>(group.block_scales + key * group.block_pitch +
                                 channel / Side::kBlock);
      }
    }
    if constexpr (Side::kBlockInOperand) {
      static_assert(Side::kBlock % Order::kLaneChannels == 0);
      block_scales[0] = Side::BlockScalePair(scale_codes[0], scale_codes[1]);
      block_scales[1] = Side::BlockScalePair(scale_codes[2], scale_codes[3]);
    }
  }
  // Operands of channels 2 * pair (out[0]) and 2 * pair + 1 (out[1]).
  __device__ __forceinline__ void Decode(int pair, u32 (&out)[2][2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32* a = words[2 * half];
      const u32* b = words[2 * half + 1];
      u32 pairs[2];
      if constexpr (Side::kCodeBits == 4) {
        DecodeNibbles<Side>(ZipBytes(a, b, pair / 2), pair % 2,
                            block_scales[half], pairs[0], pairs[1]);
      } else if constexpr (Side::kCodeBits == 8) {
        Side::Decode4(ZipBytes(a, b, pair), 0, block_scales[half], pairs);
      } else {
        Side::Decode4(arch::BytePermute(a[pair], b[pair], 0x5410),
                      arch::BytePermute(a[pair], b[pair], 0x7632),
                      block_scales[half], pairs);
      }
      out[0][half] = pairs[0];
      out[1][half] = pairs[1];
    }
  }
};

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_FRAGMENTS_CUH_
