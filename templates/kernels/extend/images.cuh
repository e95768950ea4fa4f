// Images of the keys of a batch in a workspace, made once and read by every
// block that attends to them (kernels/extend_images.cuh).
//
//   slot of (tile, kv head)   the image of the tile's K, that of its V, the row
//                             terms of K, those of V: as a slot of the ring
//                             holds them (kernels/extend/ring.cuh)
//
// The tiles of sequence 0 come first, then those of 1, ... A sequence's are
// those of the keys that some of its tokens sees, from a multiple of kBlockN
// on. Keys beyond those are zeros. The workspace holds those of one pass.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_IMAGES_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_IMAGES_CUH_

#include "kernels/extend/convert.cuh"
#include "kernels/extend/plan.cuh"
#include "ops/attention_row.cuh"
#include "ops/visible_keys.cuh"

namespace kvforge::kernels {

struct ImageSlot {
  using Shape = ExtendShape;
  static constexpr int kKeysBytes =
      spec::kHeadDim / 64 * ExtendRing::kHalfBytes;
  static constexpr int kValuesBytes =
      spec::kValueDim / 64 * ExtendRing::kHalfBytes;
  static constexpr int kKeyTermsBytes = ExtendRing::kKeyTermsBytes;
  static constexpr int kValueTermsBytes = ExtendRing::kValueTermsBytes;
  static constexpr int kKeyTerms = kKeysBytes + kValuesBytes;
  static constexpr int kBytes =
      (kKeyTerms + kKeyTermsBytes + kValueTermsBytes + 127) / 128 * 128;

  u8* address;

  __device__ __forceinline__ ImageSlot(const ExtendArgs& args, int tile,
                                       int kv_head)
      : address(args.images +
                (static_cast<i64>(tile) * args.num_kv_heads + kv_head) *
                    kBytes) {}
  template <bool kValues>
  __device__ __forceinline__ u8* Image() const {
    return address + (kValues ? kKeysBytes : 0);
  }
  template <bool kValues>
  __device__ __forceinline__ u8* Terms() const {
    return address + kKeyTerms + (kValues ? kKeyTermsBytes : 0);
  }
};

// The tiles of a sequence's keys.
struct ImageTiles {
  ops::KeyRange range;  // keys that some token sees
  int begin;            // the first tile's first key
  int count;

  __device__ __forceinline__ ImageTiles(int kv_len, int q_len) {
    if (kv_len < 0) kv_len = 0;
    range = ops::VisibleKeysOfTokens<spec::kCausal, spec::kWindow>(
        kv_len, q_len, 0, q_len - 1);
    begin = range.first / ExtendRing::kKeys * ExtendRing::kKeys;
    count =
        q_len > 0 && range.end > begin
            ? (range.end - begin + ExtendRing::kKeys - 1) / ExtendRing::kKeys
            : 0;
  }
  __device__ __forceinline__ ImageTiles(const AttentionArgs& args, int batch)
      : ImageTiles(arch::LoadGlobal<int>(args.kv_lens + batch),
                   arch::LoadGlobal<int>(args.q_indptr + batch + 1) -
                       arch::LoadGlobal<int>(args.q_indptr + batch)) {}
};

// Of sequences base .. base + 31, a lane each: the tiles, and those of the
// sequences ahead of it from base on.
struct TilesOfLane {
  int count;
  int ahead;

  __device__ __forceinline__ TilesOfLane(const AttentionArgs& args, int base,
                                         int lane) {
    count = base + lane < args.batch ? ImageTiles(args, base + lane).count : 0;
    int sum = count;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = arch::ShuffleFrom(sum, lane - step & 31);
      if (lane >= step) sum += other;
    }
    ahead = sum - count;
  }
};

// The number of the first tile of sequence `batch`. All lanes.
__device__ __forceinline__ int FirstImageTile(const AttentionArgs& args,
                                              int batch, int lane) {
  int first = 0;
#pragma unroll 1
  for (int base = 0; base <= batch; base += 32) {
    const TilesOfLane tiles(args, base, lane);
    const int last = batch - base < 31 ? batch - base : 31;
    const int ahead = arch::ShuffleFrom(tiles.ahead, last);
    const int count = arch::ShuffleFrom(tiles.count, last);
    first += ahead + (base + last < batch ? count : 0);
  }
  return first;
}

// The sequence whose tile is number `number`, and which of its tiles it is;
// batch -1 past the last. All lanes.
__device__ __forceinline__ TileOfBatch FindImageTile(const AttentionArgs& args,
                                                     int number, int lane) {
#pragma unroll 1
  for (int base = 0; base < args.batch; base += 32) {
    const TilesOfLane tiles(args, base, lane);
    const int total = arch::ShuffleFrom(tiles.ahead + tiles.count, 31);
    if (number >= total) {
      number -= total;
      continue;
    }
    // The last lane whose first tile is not behind it.
    int found = tiles.ahead <= number && tiles.count > 0 ? lane : 0;
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
      const int other = arch::ShuffleXor(found, mask);
      found = other > found ? other : found;
    }
    return {base + found, number - arch::ShuffleFrom(tiles.ahead, found)};
  }
  return {-1, 0};
}

// Where a warp writes.
struct GlobalImage {
  u8* image;
  u8* terms;
  template <class Words>
  __device__ __forceinline__ void StoreImage(int offset, Words words) const {
    arch::StoreGlobal(reinterpret_cast<Words*>(image + offset), words);
  }
  __device__ __forceinline__ void StoreTerm(int offset, u32 word) const {
    arch::StoreGlobal(reinterpret_cast<u32*>(terms + offset), word);
  }
};

// A warp's next 16 keys of one side.
struct ImageGroup {
  static constexpr int kGroupsOfTile = 2 * ExtendShape::kGroups;

  int batch;  // -1: none
  int kv_head;
  int tile;  // of this pass
  int first_key;
  bool values;
  int group;
  ops::KeyRange range;

  __device__ __forceinline__ ImageGroup(const ExtendArgs& args, i64 number,
                                        int lane) {
    batch = -1;
    group = static_cast<int>(number % ExtendShape::kGroups);
    values = number / ExtendShape::kGroups % 2 != 0;
    const i64 slot = number / kGroupsOfTile;
    kv_head = static_cast<int>(slot % args.num_kv_heads);
    const i64 of_all = slot / args.num_kv_heads;
    if (of_all >= args.image_tiles) return;
    tile = static_cast<int>(of_all);
    const TileOfBatch found = FindImageTile(args, args.first_tile + tile, lane);
    if (found.batch < 0) return;
    batch = found.batch;
    const ImageTiles tiles(args, batch);
    range = tiles.range;
    first_key =
        tiles.begin + found.tile * ExtendRing::kKeys + group * ops::kGroupKeys;
  }
};

// The warps of all blocks write the images; two groups of a warp are under way.
struct ImageMaker {
  static constexpr int kPlaceBytes =
      ExtendShape::KGroup::kBytes > ExtendShape::VGroup::kBytes
          ? ExtendShape::KGroup::kBytes
          : ExtendShape::VGroup::kBytes;
  static constexpr int kWarps = ExtendRing::kThreads / 32;
  static_assert(2 * kWarps * kPlaceBytes <= ExtendRing::kSharedBytes);

  const ExtendArgs& args;
  u32 places;  // two of this warp
  int lane;

  template <class Side, int kDim>
  __device__ __forceinline__ void CopySide(const CacheView& view,
                                           const ImageGroup& group, u32 place) {
    ops::GroupPages<spec::kPageSize> pages;
    pages.Fetch(args.page_table + group.batch * args.page_table_stride,
                group.first_key, group.range.first, group.range.end, lane);
    ops::CopyKeyGroup<Side, kDim>(
        view, group.kv_head, pages, group.first_key, group.range.first,
        group.range.end, ops::PlaceAt<ops::KeyGroup<Side, kDim>>(place), lane);
  }
  __device__ __forceinline__ void Copy(const ImageGroup& group, u32 place) {
    if (group.batch >= 0) {
      if (group.values) {
        CopySide<VSide, spec::kValueDim>(args.v, group, place);
      } else {
        CopySide<KSide, spec::kHeadDim>(args.k, group, place);
      }
    }
    arch::CpAsyncCommit();
  }
  __device__ __forceinline__ void Write(const ImageGroup& group, u32 place) {
    const ImageSlot slot(args, group.tile, group.kv_head);
    const int first_key = group.group * ops::kGroupKeys;
    if (group.values) {
      ConvertGroup<VSide, spec::kValueDim, true>(
          ops::PlaceAt<ExtendShape::VGroup>(place), first_key, 1.0f,
          GlobalImage{slot.Image<true>(), slot.Terms<true>()}, lane);
    } else {
      const float uniform =
          arch::Abs(spec::ScoreUniform(args, group.kv_head)) * ops::kLog2E;
      ConvertGroup<KSide, spec::kHeadDim, false>(
          ops::PlaceAt<ExtendShape::KGroup>(place), first_key, uniform,
          GlobalImage{slot.Image<false>(), slot.Terms<false>()}, lane);
    }
  }

  __device__ __forceinline__ void Make(i64 first, i64 step) {
    ImageGroup group(args, first, lane);
    u32 place = 0;
    Copy(group, places);
#pragma unroll 1
    for (i64 number = first; group.batch >= 0; number += step) {
      const ImageGroup next(args, number + step, lane);
      Copy(next, places + (kPlaceBytes - place));
      arch::CpAsyncWait<1>();
      arch::WarpSync();
      Write(group, places + place);
      arch::WarpSync();  // the place is free
      group = next;
      place = kPlaceBytes - place;
    }
    arch::CpAsyncWait<0>();
  }
};

__device__ __forceinline__ void MakeImages(const ExtendArgs& args) {
  const int warp = arch::ThreadIndex() / 32;
  if (arch::BlockIndex() == 0 && arch::ThreadIndex() == 0) {
    arch::StoreGlobal<u32>(args.next_item, 0);
  }
  ImageMaker maker = {args,
                      arch::SharedBase() + warp * 2 * ImageMaker::kPlaceBytes,
                      arch::ThreadIndex() % 32};
  maker.Make(static_cast<i64>(arch::BlockIndex()) * ImageMaker::kWarps + warp,
             static_cast<i64>(args.blocks) * ImageMaker::kWarps);
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_IMAGES_CUH_
