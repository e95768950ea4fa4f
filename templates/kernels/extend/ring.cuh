// What the warps of extend on warpgroups pass on to each other in shared
// memory:
//
//   loaders      copy the codes and scales of a tile's K, then of its V, then
//   of
//                the next tile's K, ... into raw places, in groups of 16 keys
//   converters   turn each into a slot: an image of 16-bit operands and the
//                keys' row terms
//   consumers    two warpgroups, 64 query rows each, multiply the images
//
//   image   64 channels of every key, 128 bytes a key, swizzled; then the next
//           64. By depth it is an operand of q K, by row one of p V
//           (arch/wgmma_matrix.cuh)
//
// Slots and raw places are rings; each has a barrier that ends a phase when it
// is filled, and one when it is free.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_RING_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_RING_CUH_

#include "kernels/extend/shape.cuh"

namespace kvforge::kernels {

struct ExtendRing {
  using Shape = ExtendShape;
  static constexpr int kGroupThreads = 128;  // of a warpgroup
  static constexpr int kConsumers = spec::kWarps * 32;
  static constexpr int kThreads = kConsumers + 2 * kGroupThreads;
  static_assert(kConsumers == 2 * kGroupThreads && spec::kBlockM == 128);

  static constexpr int kKeys = spec::kBlockN;
  static constexpr int kLineBytes = 128;  // of a key in an image: 64 channels
  static constexpr int kHalfBytes = kKeys * kLineBytes;
  static constexpr int kMostChannels =
      spec::kHeadDim > spec::kValueDim ? spec::kHeadDim : spec::kValueDim;
  static constexpr int kImageBytes = kMostChannels / 64 * kHalfBytes;
  static constexpr int kTermsBytes =
      kKeys * (Shape::KGroup::kRowScaleBytes > Shape::VGroup::kRowScaleBytes
                   ? Shape::KGroup::kRowScaleBytes
                   : Shape::VGroup::kRowScaleBytes);
  static constexpr int kSlots = spec::kStages;
  static constexpr int kRaws = 2;
  static constexpr int kRawBytes =
      Shape::kGroups * (Shape::KGroup::kBytes > Shape::VGroup::kBytes
                            ? Shape::KGroup::kBytes
                            : Shape::VGroup::kBytes);

  static constexpr int kQuery = kSlots * kImageBytes;
  static constexpr int kTerms = kQuery + Shape::kQueryBytes;
  static constexpr int kRaw = kTerms + kSlots * kTermsBytes;
  static constexpr int kBarriers = kRaw + kRaws * kRawBytes;
  static constexpr int kSharedBytes = kBarriers + 8 * (2 * kSlots + 2 * kRaws);
  static_assert(spec::kHeadDim % 64 == 0 && spec::kValueDim % 64 == 0);
  static_assert(kImageBytes % 1024 == 0 && Shape::kQueryBytes % 1024 == 0);
  static_assert(!Shape::kDotBlocks && !Shape::kWeightBlocks);

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
  using Slot = Place<kSlots>;
  using RawPlace = Place<kRaws>;

  u32 shared;

  __device__ __forceinline__ u32 Image(Slot slot) const {
    return shared + slot.index * kImageBytes;
  }
  __device__ __forceinline__ u32 Terms(Slot slot) const {
    return shared + kTerms + slot.index * kTermsBytes;
  }
  template <class Group>
  __device__ __forceinline__ ops::GroupPlace Raw(RawPlace raw,
                                                 int group) const {
    return ops::PlaceAt<Group>(shared + kRaw + raw.index * kRawBytes +
                               group * Group::kBytes);
  }
  __device__ __forceinline__ u32 Filled(Slot slot) const {
    return shared + kBarriers + 8 * slot.index;
  }
  __device__ __forceinline__ u32 Free(Slot slot) const {
    return shared + kBarriers + 8 * (kSlots + slot.index);
  }
  __device__ __forceinline__ u32 Filled(RawPlace raw) const {
    return shared + kBarriers + 8 * (2 * kSlots + raw.index);
  }
  __device__ __forceinline__ u32 Free(RawPlace raw) const {
    return shared + kBarriers + 8 * (2 * kSlots + kRaws + raw.index);
  }
  // Waits until what the place held in its last round is given back.
  template <class AnyPlace>
  __device__ __forceinline__ void WaitUntilFree(AnyPlace place) const {
    arch::MbarrierWait(Free(place), place.phase ^ 1);
  }

  // One thread; a BlockSync comes before others use them.
  __device__ __forceinline__ void Init() const {
    Slot slot;
    for (int i = 0; i < kSlots; ++i, slot.Next()) {
      arch::MbarrierInit(Filled(slot), kGroupThreads);
      arch::MbarrierInit(Free(slot), kConsumers);
    }
    RawPlace raw;
    for (int i = 0; i < kRaws; ++i, raw.Next()) {
      arch::MbarrierInit(Filled(raw), kGroupThreads);
      arch::MbarrierInit(Free(raw), kGroupThreads);
    }
  }
};

// Numbers of named barriers.
inline constexpr int kConsumerBarrier = 2;  // and the next: one a warpgroup
inline constexpr int kTurnBarrier = 4;      // likewise

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_RING_CUH_
