// The converters of extend on warpgroups: codes to images of operands.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_CONVERT_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_CONVERT_CUH_

#include "kernels/extend/ring.cuh"

namespace kvforge::kernels {

// Operands of the four channels of a step, neighbours in the order of channels
// where V's columns are written from them.
template <class Side, int kDim, bool kInOrder>
__device__ __forceinline__ void DecodeStep(const ops::KeyRun<Side, kDim>& keys,
                                           int i, u32 (&out)[2]) {
  keys.Decode(i, out);
  if constexpr (kInOrder && ops::ChannelOrder<Side, kDim>::kApart == 2) {
    const u32 even = out[0];
    out[0] = arch::BytePermute(even, out[1], 0x5410);
    out[1] = arch::BytePermute(even, out[1], 0x7632);
  }
}

// 16 keys to the image, from key first_key on. A lane takes a key and a fourth
// of a run, and writes 8 channels, steps 2u and 2u + 1, to one unit of 16
// bytes: unit 4 u + t of the key. Eight lanes that store together write to rows
// four apart, whose units lie in different banks.
template <class Side, int kDim, bool kInOrder>
__device__ __forceinline__ void ConvertGroup(ops::GroupPlace group,
                                             int first_key, u32 image,
                                             int lane) {
  using KeyRun = ops::KeyRun<Side, kDim>;
  using Order = typename KeyRun::Order;
  static_assert(KeyRun::kSteps % 2 == 0);
  const int g = lane / 4;
  const int t = lane % 4;
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    const int row = g / 2 + g % 2 * 4;
    const int key = half * 8 + row;
    const u32 line = image + (first_key + key) * ExtendRing::kLineBytes;
#pragma unroll
    for (int run = 0; run < Order::kRuns; ++run) {
#pragma unroll
      for (int part = 0; part < KeyRun::kParts; ++part) {
        KeyRun keys;
        keys.Load(group, key, run, part, t);
#pragma unroll
        for (int i = 0; i < KeyRun::kSteps; i += 2) {
          u32 first[2];
          u32 second[2];
          DecodeStep<Side, kDim, kInOrder>(keys, i, first);
          DecodeStep<Side, kDim, kInOrder>(keys, i + 1, second);
          const int u =
              (run * Order::kStepsPerRun + part * KeyRun::kSteps + i) / 2;
          const int unit = (u % 2 * 4 + t) ^ row;
          arch::StoreShared(line + u / 2 * ExtendRing::kHalfBytes + unit * 16,
                            U32x4{{first[0], first[1], second[0], second[1]}});
        }
      }
    }
  }
}

// Row terms of the group's keys, behind each other.
template <class Group>
__device__ __forceinline__ void CopyTerms(ops::GroupPlace group, int first_key,
                                          u32 terms, int lane) {
  constexpr int kWords = ops::kGroupKeys * Group::kRowScaleBytes / 4;
  if (lane < kWords) {
    arch::StoreShared(terms + first_key * Group::kRowScaleBytes + 4 * lane,
                      arch::LoadShared<u32>(group.row_scales + 4 * lane));
  }
}

template <class Side, int kDim, bool kInOrder>
__device__ __forceinline__ void ConvertSide(const ExtendRing& ring,
                                            ExtendRing::RawPlace& raw,
                                            ExtendRing::Slot& slot, int warp,
                                            int lane) {
  using Group = ops::KeyGroup<Side, kDim>;
  arch::MbarrierWait(ring.Filled(raw), raw.phase);
  ring.WaitUntilFree(slot);
#pragma unroll 1
  for (int group = warp; group < ExtendShape::kGroups; group += 4) {
    const ops::GroupPlace from = ring.Raw<Group>(raw, group);
    const int first_key = group * ops::kGroupKeys;
    ConvertGroup<Side, kDim, kInOrder>(from, first_key, ring.Image(slot), lane);
    if constexpr (Group::kRowScaleBytes > 0) {
      CopyTerms<Group>(from, first_key, ring.Terms(slot), lane);
    }
  }
  arch::AsyncFence();
  arch::MbarrierArrive(ring.Filled(slot));
  arch::MbarrierArrive(ring.Free(raw));
  raw.Next();
  slot.Next();
}

__device__ __forceinline__ void Convert(const ExtendRing& ring, int tiles,
                                        int warp, int lane) {
  ExtendRing::RawPlace raw;
  ExtendRing::Slot slot;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    ConvertSide<KSide, spec::kHeadDim, false>(ring, raw, slot, warp, lane);
    ConvertSide<VSide, spec::kValueDim, true>(ring, raw, slot, warp, lane);
  }
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_CONVERT_CUH_
