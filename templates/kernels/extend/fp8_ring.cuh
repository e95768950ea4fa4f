// What the warps of extend with fp8 products pass on to each other in shared
// memory.
//
//   producers   a warpgroup. Each warp copies two groups of 16 keys of a tile:
//               K's codes to the place where products read them, V's to a raw
//               place of its own, from which it writes them transposed
//   consumers   two warpgroups, 64 query rows each, multiply the images
//
//   K image   a line of 128 bytes a key, its channels in order
//   V image   a line of 128 bytes a channel, the tile's keys. In each 16 of
//             either lies what a lane of a V group holds, see ValueLine
//   q image   a line a row, like K's, for each warpgroup
//
// All swizzled (arch/wgmma_matrix.cuh). Row terms of a tile's keys lie in the
// order of a consumer's lanes: see TermPlace.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_FP8_RING_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_FP8_RING_CUH_

#include "kernels/extend/shape.cuh"

namespace kvforge::kernels {

// Where the row terms of a group's 16 keys lie, as PlainRows says it of others.
// Lane t of a consumer's four holds keys 8 n + 2 t and + 1 of a tile, for all
// n: its terms are neighbours, and four lanes meet other banks.
struct TermPlace {
  static constexpr int kLaneBytes = (spec::kBlockN / 4 + 4) * 4;
  static constexpr int kGroupBytes = 16;  // of a lane: four keys
  static constexpr int kBytes = 4 * kLaneBytes;

  static constexpr int kCodePitch = 0;  // a group is copied at once
  static __device__ __forceinline__ constexpr int Swizzle(int) { return 0; }
  static __device__ __forceinline__ u32 Offset(int key, int inside) {
    return key % 8 / 2 * kLaneBytes + key / 8 * 8 + key % 2 * 4 + inside;
  }
};

struct Fp8Ring {
  using Shape = ExtendShape;
  static constexpr int kGroupThreads = 128;  // of a warpgroup
  static constexpr int kConsumers = spec::kWarps * 32;
  static constexpr int kThreads = kConsumers + kGroupThreads;
  static constexpr int kKeys = spec::kBlockN;
  static constexpr int kLineBytes = 128;
  static_assert(kConsumers == 2 * kGroupThreads && spec::kBlockM == 128);
  static_assert(kKeys == kLineBytes && spec::kHeadDim == kLineBytes);
  static_assert(spec::kValueDim == kLineBytes);
  static_assert(!KSide::kChannelScale && !VSide::kChannelScale);

  static constexpr int kKeySlots = spec::kStages;
  static constexpr int kRaws = spec::kStages;
  static constexpr int kValueSlots = 2;
  static constexpr int kKeyImageBytes = kKeys * kLineBytes;
  static constexpr int kValueImageBytes = spec::kValueDim * kLineBytes;
  static constexpr int kQueryImageBytes = 64 * kLineBytes;  // of a warpgroup
  static constexpr int kRawBytes = kKeys * spec::kValueDim;

  // Scales of keys; of values their logarithms, then their inverses.
  static constexpr int kKeyTermBytes = KSide::kRowScale ? TermPlace::kBytes : 0;
  static constexpr int kValueTermBytes =
      VSide::kRowScale ? 2 * TermPlace::kBytes : 0;
  static constexpr int kRawTermBytes = kKeys * Shape::VGroup::kRowScaleBytes;

  static constexpr int kValueImages = kKeySlots * kKeyImageBytes;
  static constexpr int kQuery = kValueImages + kValueSlots * kValueImageBytes;
  static constexpr int kRaw = kQuery + 2 * kQueryImageBytes;
  static constexpr int kKeyTerms = kRaw + kRaws * kRawBytes;
  static constexpr int kValueTerms = kKeyTerms + kKeySlots * kKeyTermBytes;
  static constexpr int kRawTerms = kValueTerms + kValueSlots * kValueTermBytes;
  static constexpr int kBarriers = kRawTerms + kRaws * kRawTermBytes;
  static constexpr int kSharedBytes =
      kBarriers + 8 * 2 * (kKeySlots + kValueSlots);

  // Where the threads of a ring stand.
  template <int kPlaces>
  struct Place {
    int index = 0;
    u32 phase = 0;
    __device__ __forceinline__ void Next() {
      if (++index == kPlaces) {
        index = 0;
        phase ^= 1;
      }
    }
  };
  // Apart also where there are as many of one as of the other.
  struct KeySlot : Place<kKeySlots> {};
  struct ValueSlot : Place<kValueSlots> {};

  u32 shared;

  __device__ __forceinline__ u32 Image(KeySlot slot) const {
    return shared + slot.index * kKeyImageBytes;
  }
  __device__ __forceinline__ u32 Image(ValueSlot slot) const {
    return shared + kValueImages + slot.index * kValueImageBytes;
  }
  __device__ __forceinline__ u32 QueryImage(int warpgroup) const {
    return shared + kQuery + warpgroup * kQueryImageBytes;
  }
  __device__ __forceinline__ u32 Terms(KeySlot slot) const {
    return shared + kKeyTerms + slot.index * kKeyTermBytes;
  }
  __device__ __forceinline__ u32 LogTerms(ValueSlot slot) const {
    return shared + kValueTerms + slot.index * kValueTermBytes;
  }
  __device__ __forceinline__ u32 InverseTerms(ValueSlot slot) const {
    return LogTerms(slot) + TermPlace::kBytes;
  }
  // V's codes of a group in the raw place that goes with a slot of K, and its
  // scales.
  __device__ __forceinline__ ops::GroupPlace Raw(KeySlot slot,
                                                 int group) const {
    using Group = Shape::VGroup;
    return {shared + kRaw + slot.index * kRawBytes + group * Group::kCodesBytes,
            shared + kRawTerms + slot.index * kRawTermBytes +
                group * ops::kGroupKeys * Group::kRowScaleBytes,
            0, Group::kRowScaleBytes};
  }
  __device__ __forceinline__ u32 Filled(KeySlot slot) const {
    return shared + kBarriers + 8 * slot.index;
  }
  __device__ __forceinline__ u32 Free(KeySlot slot) const {
    return Filled(slot) + 8 * kKeySlots;
  }
  __device__ __forceinline__ u32 Filled(ValueSlot slot) const {
    return shared + kBarriers + 8 * (2 * kKeySlots + slot.index);
  }
  __device__ __forceinline__ u32 Free(ValueSlot slot) const {
    return Filled(slot) + 8 * kValueSlots;
  }
  // Waits until what the place held in its last round is given back.
  template <class Slot>
  __device__ __forceinline__ void WaitUntilFree(Slot slot) const {
    arch::MbarrierWait(Free(slot), slot.phase ^ 1);
  }

  // One thread; a BlockSync comes before others use them. Warps arrive by one
  // lane each.
  __device__ __forceinline__ void Init() const {
    InitSlots<KeySlot>(kKeySlots);
    InitSlots<ValueSlot>(kValueSlots);
  }
  template <class Slot>
  __device__ __forceinline__ void InitSlots(int slots) const {
    Slot slot;
    for (int i = 0; i < slots; ++i, slot.Next()) {
      arch::MbarrierInit(Filled(slot), kGroupThreads);
      arch::MbarrierInit(Free(slot), kConsumers);
    }
  }
};

// Numbers of named barriers.
inline constexpr int kConsumerBarrier = 2;  // and the next: one a warpgroup
inline constexpr int kTurnBarrier = 4;      // likewise

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_FP8_RING_CUH_
