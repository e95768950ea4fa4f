// extend on warpgroups (sm_90a) with a workspace: what kernels/extend.cuh
// computes, in two launches of this kernel.
//
//   makes_images   writes the images of all keys (kernels/extend/images.cuh)
//   else           attends: a block takes items of work, kBlockM = 128 query
//                  rows (token, head of the group) of one kv head, until none
//                  is left, the longest first where masks are causal
//
//   block  two consumer warpgroups, then one whose first warp takes the items
//          and copies images (kernels/extend/ring.cuh); none of it converts
//
// Rows of sequences whose tiles the workspace does not hold become NaN.
//
// Shared memory: as kernels/extend_warpgroups.cuh, without raw places.
#include "kernels/extend/consumer.cuh"
#include "kernels/extend/images.cuh"
#include "kernels/extend/output.cuh"
#include "kernels/extend/plan.cuh"
#include "kernels/extend/queries.cuh"

namespace kvforge::kernels {

// Registers a thread of each kind keeps: together what the block is launched
// with.
inline constexpr int kFeederRegisters = 40;
inline constexpr int kConsumerRegisters = 232;

// 128 query rows of one kv head; batch -1: no work is left.
struct ExtendItem {
  int batch;
  int kv_head;
  int row0;
  bool held;  // whether the workspace has all of its images

  static __device__ __forceinline__ ExtendItem Read(u32 shared) {
    const U32x4 words = arch::LoadShared<U32x4>(shared);
    return {static_cast<int>(words.v[0]), static_cast<int>(words.v[1]),
            static_cast<int>(words.v[2]), words.v[3] != 0};
  }
  __device__ __forceinline__ void Write(u32 shared) const {
    arch::StoreShared(shared,
                      U32x4{{static_cast<u32>(batch), static_cast<u32>(kv_head),
                             static_cast<u32>(row0), held ? 1u : 0u}});
  }
};

// Tiles as images: they begin at multiples of kBlockN.
__device__ __forceinline__ ExtendWork
WorkOfImages(const ops::Sequence& sequence, int row0) {
  ExtendWork work(sequence, row0);
  work.begin = work.range.first / ExtendRing::kKeys * ExtendRing::kKeys;
  work.tiles = work.range.end > work.begin
                   ? (work.range.end - work.begin + ExtendRing::kKeys - 1) /
                         ExtendRing::kKeys
                   : 0;
  return work;
}

// The warp that hands out items and copies images.
struct ImageFeeder {
  const ExtendArgs& args;
  const ExtendRing& ring;
  int lane;

  template <bool kValues>
  __device__ __forceinline__ void CopySide(ExtendRing::Slot slot,
                                           const ImageSlot& from) {
    constexpr int kImage =
        kValues ? ImageSlot::kValuesBytes : ImageSlot::kKeysBytes;
    constexpr int kTerms =
        kValues ? 0 : ImageSlot::kKeyTermsBytes + ImageSlot::kValueTermsBytes;
    ring.WaitUntilFree(slot);
    const u32 filled = ring.Filled(slot);
    arch::ExpectBytes(filled, kImage + kTerms);
    arch::BulkCopy(ring.Image(slot), from.Image<kValues>(), kImage, filled);
    if constexpr (kTerms > 0) {
      arch::BulkCopy(ring.Terms(slot), from.Terms<kValues>(), kTerms, filled);
    }
    arch::MbarrierArrive(filled);
  }

  // The next item that has rows.
  __device__ __forceinline__ ExtendItem NextItem() {
    const i64 tiles = args.batch > 0 ? FirstTile(args, args.batch) : 0;
    for (;;) {
      u32 number = 0;
      if (lane == 0) number = arch::AddGlobal(args.next_item, 1u);
      number = arch::ShuffleFrom(number, 0);
      const i64 tile = tiles - 1 - number / args.num_kv_heads;
      if (tile < 0) return {-1, 0, 0, true};
      const TileOfBatch found = FindTile(args, tile, lane);
      if (found.batch < 0) continue;
      const int kv_head = static_cast<int>(number % args.num_kv_heads);
      const ops::Sequence sequence(args, found.batch, kv_head);
      const i64 row0 = static_cast<i64>(found.tile) * spec::kBlockM;
      if (row0 >= static_cast<i64>(sequence.q_len) * spec::kGroup) continue;
      return {found.batch, kv_head, static_cast<int>(row0), true};
    }
  }

  __device__ __forceinline__ void Feed() {
    ExtendRing::Slot slot;
    ExtendRing::ItemPlace place;
#pragma unroll 1
    for (;;) {
      ExtendItem item = NextItem();
      const int batch = item.batch < 0 ? 0 : item.batch;
      const ops::Sequence sequence(args, batch, item.kv_head);
      const ExtendWork work = WorkOfImages(sequence, item.row0);
      const ImageTiles images(sequence.kv_len, sequence.q_len);
      const int first = FirstImageTile(args, batch, lane) +
                        (work.begin - images.begin) / ExtendRing::kKeys;
      item.held = first + work.tiles <= args.image_tiles;
      ring.WaitUntilFree(place);
      if (lane == 0) item.Write(ring.Item(place));
      arch::WarpSync();
      if (lane == 0) arch::MbarrierArrive(ring.Filled(place));
      place.Next();
      if (item.batch < 0) return;
      if (lane == 0) {
#pragma unroll 1
        for (int tile = 0; tile < work.tiles; ++tile) {
          // The first image stands in for one that is not there.
          const ImageSlot from(args, item.held ? first + tile : 0,
                               item.kv_head);
          CopySide<false>(slot, from);
          slot.Next();
          CopySide<true>(slot, from);
          slot.Next();
        }
      }
      arch::WarpSync();
    }
  }
};

__device__ __forceinline__ void AttendItems(const ExtendArgs& args) {
  const int warp = arch::ThreadIndex() / 32;
  const int lane = arch::ThreadIndex() % 32;
  const ExtendRing ring = {arch::SharedBase()};
  if (arch::ThreadIndex() == 0) ring.Init();
  arch::BlockSync();
  if (warp >= spec::kWarps) {
    arch::LowerRegisters<kFeederRegisters>();
    if (warp == spec::kWarps) {
      ImageFeeder feeder = {args, ring, lane};
      feeder.Feed();
    }
    return;
  }
  arch::RaiseRegisters<kConsumerRegisters>();
  ExtendRing::ItemPlace place;
  u32 first_slot = 0;
  if (warp / 4 == 1) Consumer::PassTurn(1);
#pragma unroll 1
  for (;;) {
    arch::MbarrierWait(ring.Filled(place), place.Phase());
    const ExtendItem item = ExtendItem::Read(ring.Item(place));
    if (item.batch < 0) break;
    const ops::Sequence sequence(args, item.batch, item.kv_head);
    const ExtendWork work = WorkOfImages(sequence, item.row0);
    Consumer consumer = {args,     sequence, work,      ring,
                         warp / 4, lane,     first_slot};
    // The products of the item before have read its queries.
    arch::NamedSync(kConsumerBarrier + warp / 4, ExtendRing::kGroupThreads);
    LoadQueries<QueryImages>(args, sequence, item.row0, warp, lane,
                             ring.shared + ExtendRing::kQuery, consumer.state);
    arch::AsyncFence();
    arch::NamedSync(kConsumerBarrier + warp / 4, ExtendRing::kGroupThreads);
    consumer.Attend();
    first_slot += 2 * work.tiles;
    const ExtendItem again = ExtendItem::Read(ring.Item(place));
    if (!again.held) {
#pragma unroll
      for (ops::SoftmaxRow& row : consumer.state.softmax) {
        row.sum = arch::FromBits(0x7fc00000u);
      }
    }
    const ops::Sequence written(args, again.batch, again.kv_head);
    WriteRows(args, written, warp, lane, consumer.state);
    arch::MbarrierArrive(ring.Free(place));
    place.Next();
  }
  if (warp / 4 == 0) Consumer::WaitForTurn(0);
}

}  // namespace kvforge::kernels

extern "C" __constant__ int kvforge_shared_bytes =
    kvforge::kernels::ExtendRing::kSharedBytes;
extern "C" __constant__ int kvforge_block_threads =
    kvforge::kernels::ExtendRing::kThreads;

extern "C" __global__ void __launch_bounds__(
    kvforge::kernels::ExtendRing::kThreads, 1)
    kvforge_kernel(const __grid_constant__ kvforge::ExtendArgs args) {
  if (args.makes_images != 0) {
    kvforge::kernels::MakeImages(args);
  } else {
    kvforge::kernels::AttendItems(args);
  }
}
