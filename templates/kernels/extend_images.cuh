// extend on warpgroups (sm_90a) with a workspace: what kernels/extend.cuh
// computes, in passes over the tiles of all keys, each two launches of this
// kernel.
//
//   makes_images   writes the images of a pass (kernels/extend/images.cuh)
//   else           attends: a block takes items of work, kBlockM = 128 query
//                  rows (token, head of the group) of one kv head, until none
//                  is left, the longest first where masks are causal. Rows
//                  whose tiles go on in the next pass leave their state there
//
//   block  two consumer warpgroups, then one of which a warp copies images, one
//          takes the next item and two load its queries
//          (kernels/extend/ring.cuh); none of it converts
//
// Rows of which a tile is behind the last pass become NaN.
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

// What a pass does of 128 query rows of one kv head; batch -1: no work is left.
struct ExtendItem {
  // An earlier pass had tiles of these rows; a later one has; none has some.
  static constexpr u32 kGoesOn = 1;
  static constexpr u32 kIsLeft = 2;
  static constexpr u32 kMisses = 4;

  int batch;
  int kv_head;
  int row0;
  u32 flags;
  int state;  // the place of the rows' state
  int begin;  // the first tile's first key
  int tiles;
  int first_image;  // of the first tile, in the workspace
  int q_start;      // of the sequence, as its lengths
  int q_len;
  int kv_len;

  static __device__ __forceinline__ ExtendItem Read(u32 shared) {
    const U32x4 rows = arch::LoadShared<U32x4>(shared);
    const U32x4 keys = arch::LoadShared<U32x4>(shared + 16);
    const U32x4 lengths = arch::LoadShared<U32x4>(shared + 32);
    return {static_cast<int>(rows.v[0]),    static_cast<int>(rows.v[1]),
            static_cast<int>(rows.v[2]),    rows.v[3],
            static_cast<int>(keys.v[0]),    static_cast<int>(keys.v[1]),
            static_cast<int>(keys.v[2]),    static_cast<int>(keys.v[3]),
            static_cast<int>(lengths.v[0]), static_cast<int>(lengths.v[1]),
            static_cast<int>(lengths.v[2])};
  }
  __device__ __forceinline__ void Write(u32 shared) const {
    arch::StoreShared(shared,
                      U32x4{{static_cast<u32>(batch), static_cast<u32>(kv_head),
                             static_cast<u32>(row0), flags}});
    arch::StoreShared(
        shared + 16,
        U32x4{{static_cast<u32>(state), static_cast<u32>(begin),
               static_cast<u32>(tiles), static_cast<u32>(first_image)}});
    arch::StoreShared(shared + 32,
                      U32x4{{static_cast<u32>(q_start), static_cast<u32>(q_len),
                             static_cast<u32>(kv_len), 0}});
  }
  __device__ __forceinline__ ops::Sequence Of(const AttentionArgs& args) const {
    return ops::Sequence(args, batch, kv_head, q_start, q_len, kv_len);
  }

  // Sets what this pass does; false if that is nothing. All lanes.
  __device__ __forceinline__ bool Enter(const ExtendArgs& args,
                                        const ops::Sequence& sequence,
                                        int lane) {
    const ExtendWork work(sequence, row0);
    const ImageTiles images(sequence.kv_len, sequence.q_len);
    // Tiles as images begin at multiples of kBlockN.
    begin = work.range.first / ExtendRing::kKeys * ExtendRing::kKeys;
    tiles = work.range.end > begin
                ? (work.range.end - begin - 1) / ExtendRing::kKeys + 1
                : 0;
    flags = 0;
    if (tiles == 0) return args.first_tile == 0;
    const int first = FirstImageTile(args, batch, lane) +
                      (begin - images.begin) / ExtendRing::kKeys;
    const int skipped = args.first_tile > first ? args.first_tile - first : 0;
    const i64 left =
        static_cast<i64>(first) + tiles - args.first_tile - args.image_tiles;
    if (skipped > 0) flags |= kGoesOn;
    if (left > 0) flags |= args.last_pass != 0 ? kMisses : kIsLeft;
    begin += skipped * ExtendRing::kKeys;
    first_image = first + skipped - args.first_tile;
    tiles -= skipped + (left > 0 ? static_cast<int>(left) : 0);
    if ((flags & kMisses) != 0) tiles = 0;
    return tiles > 0 || (flags & kMisses) != 0;
  }
};

// A thread's rows from pass to pass, in units of 4 words of all threads. What
// makes a key heavy is found anew.
struct PassedState {
  static constexpr int kUnits = spec::kValueDim / 8 + 2;
  static_assert(!ExtendShape::kWeightBlocks && !VSide::kRowMinimum);

  float* address;

  __device__ __forceinline__ PassedState(const ExtendArgs& args,
                                         const ExtendItem& item)
      : address(args.states +
                static_cast<i64>(item.state) * kUnits * 4 *
                    ExtendRing::kConsumers +
                4 * arch::ThreadIndex()) {}
  __device__ __forceinline__ float* Unit(int unit) const {
    return address + unit * 4 * ExtendRing::kConsumers;
  }
  __device__ __forceinline__ void StoreUnit(int unit, float a, float b, float c,
                                            float d) const {
    arch::StoreGlobal(
        reinterpret_cast<U32x4*>(Unit(unit)),
        U32x4{{arch::Bits(a), arch::Bits(b), arch::Bits(c), arch::Bits(d)}});
  }
  __device__ __forceinline__ void Store(const ExtendState& state) const {
#pragma unroll
    for (int n = 0; n < ExtendShape::kNTiles; ++n) {
      const float(&out)[4] = state.out[0][n];
      StoreUnit(n, out[0], out[1], out[2], out[3]);
    }
#pragma unroll
    for (int i = 0; i < ExtendState::kRows; ++i) {
      const ops::SoftmaxRow& row = state.softmax[i];
      StoreUnit(kUnits - 2 + i, row.max2, row.ref2, row.sum, row.gain);
    }
  }
  __device__ __forceinline__ void Load(ExtendState& state) const {
    const auto load = [&](int unit) {
      return arch::LoadGlobal<U32x4>(
          reinterpret_cast<const U32x4*>(Unit(unit)));
    };
#pragma unroll
    for (int n = 0; n < ExtendShape::kNTiles; ++n) {
      const U32x4 words = load(n);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        state.out[0][n][i] = arch::FromBits(words.v[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < ExtendState::kRows; ++i) {
      const U32x4 words = load(kUnits - 2 + i);
      ops::SoftmaxRow& row = state.softmax[i];
      row.max2 = arch::FromBits(words.v[0]);
      row.ref2 = arch::FromBits(words.v[1]);
      row.sum = arch::FromBits(words.v[2]);
      row.gain = arch::FromBits(words.v[3]);
    }
  }
};

// The warp that copies the images of items.
struct ImageCopier {
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

  __device__ __forceinline__ void Copy() {
    ExtendRing::Slot slot;
    ExtendRing::ItemPlace place;
#pragma unroll 1
    for (;; place.Next()) {
      arch::MbarrierWait(ring.Filled(place), place.Phase());
      const ExtendItem item = ExtendItem::Read(ring.Item(place));
      if (item.batch < 0) return;
      arch::WarpSync();
      if (lane == 0) {
        arch::MbarrierArrive(ring.Free(place));
#pragma unroll 1
        for (int tile = 0; tile < item.tiles; ++tile) {
          const ImageSlot from(args, item.first_image + tile, item.kv_head);
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

// Hands out items to the block. One warp.
struct ItemTaker {
  const ExtendArgs& args;
  const ExtendRing& ring;
  int lane;

  // The next item that has rows, and work in this pass.
  __device__ __forceinline__ ExtendItem Next() {
    const i64 tiles = args.batch > 0 ? FirstTile(args, args.batch) : 0;
    for (;;) {
      u32 number = 0;
      if (lane == 0) number = arch::AddGlobal(args.next_item, 1u);
      number = arch::ShuffleFrom(number, 0);
      const i64 tile = tiles - 1 - number / args.num_kv_heads;
      if (tile < 0) return {-1};
      const TileOfBatch found = FindTile(args, tile, lane);
      if (found.batch < 0) continue;
      const int kv_head = static_cast<int>(number % args.num_kv_heads);
      const ops::Sequence sequence(args, found.batch, kv_head);
      const i64 row0 = static_cast<i64>(found.tile) * spec::kBlockM;
      if (row0 >= static_cast<i64>(sequence.q_len) * spec::kGroup) continue;
      ExtendItem item = {found.batch, kv_head, static_cast<int>(row0)};
      item.q_start = sequence.q_start;
      item.q_len = sequence.q_len;
      item.kv_len = sequence.kv_len;
      item.state = static_cast<int>(tile * args.num_kv_heads + kv_head);
      if (item.Enter(args, sequence, lane)) return item;
    }
  }
  __device__ __forceinline__ void Take() {
    ExtendRing::ItemPlace place;
#pragma unroll 1
    for (;; place.Next()) {
      const ExtendItem item = Next();
      ring.WaitUntilFree(place);
      if (lane == 0) item.Write(ring.Item(place));
      arch::WarpSync();
      if (lane == 0) arch::MbarrierArrive(ring.Filled(place));
      if (item.batch < 0) return;
    }
  }
};

// Sets a thread's rows, whose queries were loaded. `factors`: of all rows.
__device__ __forceinline__ void TakeRows(const ExtendArgs& args,
                                         const ExtendItem& item, u32 factors,
                                         int warp, int lane,
                                         ExtendState& state) {
  const int first = warp * ExtendShape::kWarpRows + lane / 4;
  const float uniform = arch::Abs(spec::ScoreUniform(args, item.kv_head));
  state.first_row = item.row0 + first;
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) {
    state.SetUniform(i, arch::LoadShared<float>(factors + 4 * (first + 8 * i)),
                     uniform);
    state.q_sum[i] = 0;
  }
  ClearState(state);
}

// A warp that loads queries of the items.
struct QueryLoader {
  const ExtendArgs& args;
  const ExtendRing& ring;

  __device__ __forceinline__ void Load() {
    constexpr int kRows = ExtendRing::kLoaders / 4;  // at a time
    static_assert(spec::kBlockM % kRows == 0);
    ExtendRing::ItemPlace place;
#pragma unroll 1
    for (;; place.Next()) {
      // Items come to a place whose queries are done with.
      arch::MbarrierWait(ring.Filled(place), place.Phase());
      const ExtendItem item = ExtendItem::Read(ring.Item(place));
      if (item.batch < 0) return;
      const ops::Sequence sequence = item.Of(args);
      const bool flips = FlipsQueries(args, item.kv_head);
#pragma unroll 1
      for (int i = 0; i < spec::kBlockM; i += kRows) {
        // Anew: no register holds the places of a row's words.
        const int thread = Anew(arch::ThreadIndex()) - 32 * (spec::kWarps + 2);
        const int row_lane = thread % 32;
        const int row = i + thread / 4;
        const QueryFacts facts =
            LoadQueryRow<QueryImages>(args, sequence, item.row0, row, flips,
                                      true, row_lane, ring.Query(place));
        if (row_lane % 4 == 0) {
          arch::StoreShared(ring.Item(place) + ExtendRing::kFactors + 4 * row,
                            arch::Bits(facts.inverse));
        }
      }
      arch::AsyncFence();
      arch::MbarrierArrive(ring.Loaded(place));
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
      ImageCopier copier = {args, ring, lane};
      copier.Copy();
    } else if (warp == spec::kWarps + 1) {
      ItemTaker taker = {args, ring, lane};
      taker.Take();
    } else {
      QueryLoader loader = {args, ring};
      loader.Load();
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
    const ops::Sequence sequence = item.Of(args);
    ExtendWork work(sequence, item.row0);
    work.begin = item.begin;
    work.tiles = item.tiles;
    Consumer consumer = {args,     sequence, work,       ring,
                         warp / 4, lane,     first_slot, ring.Query(place)};
    arch::MbarrierWait(ring.Loaded(place), place.Phase());
    TakeRows(args, item, ring.Item(place) + ExtendRing::kFactors, warp, lane,
             consumer.state);
    if ((item.flags & ExtendItem::kGoesOn) != 0) {
      PassedState(args, item).Load(consumer.state);
    }
    // Nothing is under way: ptxas needs to see that where the branches meet, or
    // it serialises all products.
    arch::WgmmaWait<0>(consumer.state.out[0]);
    consumer.Attend();
    first_slot += 2 * work.tiles;
    const ExtendItem again = ExtendItem::Read(ring.Item(place));
    if ((again.flags & ExtendItem::kIsLeft) != 0) {
      PassedState(args, again).Store(consumer.state);
    } else {
      if ((again.flags & ExtendItem::kMisses) != 0) {
#pragma unroll
        for (ops::SoftmaxRow& row : consumer.state.softmax) {
          row.max2 = row.ref2 = 0;
          row.sum = arch::FromBits(0x7fc00000u);
        }
      }
      const ops::Sequence written = again.Of(args);
      // Anew: no register holds channels of the output from item to item.
      WriteRows(args, written, warp, Anew(lane), consumer.state);
    }
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
