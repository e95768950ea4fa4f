// What the warps of extend on warpgroups pass on to each other in shared
// memory:
//
//   feeders      a warpgroup that fills slots: an image of a tile's K with the
//                keys' row terms, one of its V, one of the next tile's K, ...
//   consumers    two warpgroups, 64 query rows each, multiply the images
//
//   image   64 channels of every key, 128 bytes a key, swizzled; then the next
//           64. By depth it is an operand of q K, by row one of p V
//           (arch/wgmma_matrix.cuh)
//   terms   scales of the keys: those of the columns that lane t of a consumer
//           holds, keys 8 n + 2 t and the next for all n, lie together. Of V
//           then, for each 16 keys, the largest factor of a weight; from a
//           workspace also its logarithm in base 2 and one over it, where it is
//           the factor of all (kernels/extend/convert.cuh)
//
// Slots are a ring; each has a barrier that ends a phase when it is filled, and
// one when it is free. Where the feeders make the images themselves they copy
// codes to raw places first, each warp its own groups of 16 keys. Where they
// copy images from a workspace (kImages) a block takes one item of work after
// the other, and these are a ring as well: one of the feeders' warps copies
// images, one takes items and two load an item's queries.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_RING_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_RING_CUH_

#include "kernels/extend/shape.cuh"

namespace kvforge::kernels {

struct ExtendRing {
  using Shape = ExtendShape;
  static constexpr int kGroupThreads = 128;  // of a warpgroup
  static constexpr int kConsumers = spec::kWarps * 32;
  static constexpr int kThreads = kConsumers + kGroupThreads;
  static constexpr int kLoaders = kGroupThreads / 2;  // of an item's queries
  static_assert(kConsumers == 2 * kGroupThreads && spec::kBlockM == 128);

  static constexpr int kKeys = spec::kBlockN;
  static constexpr int kLineBytes = 128;  // of a key in an image: 64 channels
  static constexpr int kHalfBytes = kKeys * kLineBytes;
  static constexpr int kMostChannels =
      spec::kHeadDim > spec::kValueDim ? spec::kHeadDim : spec::kValueDim;
  static constexpr int kImageBytes = kMostChannels / 64 * kHalfBytes;
  // Bytes of scales from lane to lane: reads of four lanes meet no bank twice.
  static constexpr int kLaneBytes = kKeys + 16;
  static constexpr int kScalesBytes = 4 * kLaneBytes;
  static constexpr int kKeyTermsBytes = KSide::kRowScale ? kScalesBytes : 0;
  static constexpr int kTopsBytes = (4 * Shape::kGroups + 15) / 16 * 16;
  static constexpr int kValueTermsBytes =
      VSide::kRowScale ? kScalesBytes + (spec::kImages ? 3 : 1) * kTopsBytes
                       : 0;
  static_assert(!KSide::kRowMinimum && !VSide::kRowMinimum);
  // Images come with the terms of both sides in K's slot.
  static constexpr int kTermsBytes =
      spec::kImages                       ? kKeyTermsBytes + kValueTermsBytes
      : kKeyTermsBytes > kValueTermsBytes ? kKeyTermsBytes
                                          : kValueTermsBytes;
  static constexpr int kSlots = spec::kStages;
  static constexpr int kRaws = spec::kImages ? 0 : 3;
  // Of a group of K or of V alike: a warp's own in every round.
  static constexpr int kRawGroupBytes =
      Shape::KGroup::kBytes > Shape::VGroup::kBytes ? Shape::KGroup::kBytes
                                                    : Shape::VGroup::kBytes;
  static constexpr int kRawBytes = Shape::kGroups * kRawGroupBytes;

  // Items of work under way, and their queries.
  static constexpr int kItems = spec::kImages ? 2 : 0;
  static constexpr int kQueries = spec::kImages ? kItems : 1;
  static constexpr int kQuery = kSlots * kImageBytes;
  static constexpr int kTerms = kQuery + kQueries * Shape::kQueryBytes;
  static constexpr int kRaw = kTerms + kSlots * kTermsBytes;
  static constexpr int kBarriers = kRaw + kRaws * kRawBytes;
  static constexpr int kItem = kBarriers + 8 * (2 * kSlots + 3 * kItems);
  // What it is, then an f32 for each row: one over what its query was
  // multiplied by.
  static constexpr int kFactors = 48;
  static constexpr int kItemBytes = kFactors + 4 * spec::kBlockM;
  static constexpr int kSharedBytes = kItem + kItems * kItemBytes;
  static_assert(spec::kHeadDim % 64 == 0 && spec::kValueDim % 64 == 0);
  static_assert(kImageBytes % 1024 == 0 && Shape::kQueryBytes % 1024 == 0);
  static_assert(!Shape::kDotBlocks && !Shape::kWeightBlocks);

  // The place of a ring that comes `count` places behind its first.
  template <int kPlaces>
  struct Place {
    u32 count = 0;
    __device__ __forceinline__ int Index() const { return count % kPlaces; }
    __device__ __forceinline__ u32 Phase() const { return count / kPlaces % 2; }
    __device__ __forceinline__ void Next() { ++count; }
  };
  using Slot = Place<kSlots>;
  using ItemPlace = Place<2>;

  u32 shared;

  __device__ __forceinline__ u32 Image(Slot slot) const {
    return shared + slot.Index() * kImageBytes;
  }
  __device__ __forceinline__ u32 Terms(Slot slot) const {
    return shared + kTerms + slot.Index() * kTermsBytes;
  }
  template <class Group>
  __device__ __forceinline__ ops::GroupPlace Raw(u32 place, int group) const {
    return ops::PlaceAt<Group>(shared + kRaw + place * kRawBytes +
                               group * kRawGroupBytes);
  }
  __device__ __forceinline__ u32 Item(ItemPlace item) const {
    return shared + kItem + item.Index() * kItemBytes;
  }
  __device__ __forceinline__ u32 Query(ItemPlace item) const {
    return shared + kQuery + item.Index() * Shape::kQueryBytes;
  }
  __device__ __forceinline__ u32 Filled(Slot slot) const {
    return shared + kBarriers + 8 * slot.Index();
  }
  __device__ __forceinline__ u32 Free(Slot slot) const {
    return shared + kBarriers + 8 * (kSlots + slot.Index());
  }
  __device__ __forceinline__ u32 Filled(ItemPlace item) const {
    return shared + kBarriers + 8 * (2 * kSlots + item.Index());
  }
  __device__ __forceinline__ u32 Free(ItemPlace item) const {
    return shared + kBarriers + 8 * (2 * kSlots + kItems + item.Index());
  }
  // That the item's queries are there.
  __device__ __forceinline__ u32 Loaded(ItemPlace item) const {
    return shared + kBarriers + 8 * (2 * kSlots + 2 * kItems + item.Index());
  }
  // Waits until what the place held in its last round is given back.
  template <class AnyPlace>
  __device__ __forceinline__ void WaitUntilFree(AnyPlace place) const {
    arch::MbarrierWait(Free(place), place.Phase() ^ 1);
  }

  // One thread; a BlockSync comes before others use them.
  __device__ __forceinline__ void Init() const {
    Slot slot;
    for (int i = 0; i < kSlots; ++i, slot.Next()) {
      arch::MbarrierInit(Filled(slot), spec::kImages ? 1 : kGroupThreads);
      arch::MbarrierInit(Free(slot), kConsumers);
    }
    ItemPlace item;
    for (int i = 0; i < kItems; ++i, item.Next()) {
      arch::MbarrierInit(Filled(item), 1);
      arch::MbarrierInit(Free(item), kConsumers + 1);  // who copies images
      arch::MbarrierInit(Loaded(item), kLoaders);
    }
  }
};

// Numbers of named barriers.
inline constexpr int kConsumerBarrier = 2;  // and the next: one a warpgroup
inline constexpr int kTurnBarrier = 4;      // likewise

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_RING_CUH_
