// The feeders of extend on warpgroups that make images themselves.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_FEEDER_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_FEEDER_CUH_

#include "kernels/extend/convert.cuh"
#include "kernels/extend/work.cuh"

namespace kvforge::kernels {

// One of four warps. Its groups of a tile are `warp`, warp + 4, ...: it copies
// their codes to raw places, a tile ahead, and converts what it has copied
// itself. Pages are read two tiles ahead.
struct Feeder {
  static constexpr int kWarpGroups = (ExtendShape::kGroups + 3) / 4;
  static constexpr int kAhead = 2;  // sides of a tile
  static_assert(ExtendRing::kRaws == kAhead + 1);

  const AttentionArgs& args;
  const ops::Sequence& sequence;
  const ExtendWork& work;
  const ExtendRing& ring;
  int warp;
  int lane;
  ExtendPages pages[kWarpGroups];  // of the tile that is copied next

  __device__ __forceinline__ int Key(int tile, int i) const {
    return work.begin + tile * spec::kBlockN + (warp + 4 * i) * ops::kGroupKeys;
  }
  __device__ __forceinline__ void ReadPages(int tile) {
#pragma unroll
    for (int i = 0; i < kWarpGroups; ++i) {
      pages[i] = FetchPages(args, sequence, work, Key(tile, i), lane);
    }
  }
  // Copies of one side of a tile: a group of asynchronous copies, empty past
  // the last tile.
  template <class Side, int kDim>
  __device__ __forceinline__ void Copy(const CacheView& view, int tile,
                                       u32 raw) {
    if (tile < work.tiles) {
#pragma unroll
      for (int i = 0; i < kWarpGroups; ++i) {
        const int group = warp + 4 * i;
        if (group >= ExtendShape::kGroups) break;
        // What follows from it is not worked out ahead and kept.
        const int copy_lane = Anew(lane);
        ops::CopyKeyGroup<Side, kDim>(
            view, sequence.kv_head, pages[i], Key(tile, i), work.range.first,
            work.range.end, ring.Raw<ops::KeyGroup<Side, kDim>>(raw, group),
            copy_lane);
      }
    }
    arch::CpAsyncCommit();
  }
  template <class Side, int kDim, bool kInOrder>
  __device__ __forceinline__ void ConvertSide(ExtendRing::Slot slot, u32 raw) {
    arch::CpAsyncWait<kAhead>();
    arch::WarpSync();
    ring.WaitUntilFree(slot);
#pragma unroll 1
    for (int group = warp; group < ExtendShape::kGroups; group += 4) {
      ConvertGroup<Side, kDim, kInOrder>(
          ring.Raw<ops::KeyGroup<Side, kDim>>(raw, group),
          group * ops::kGroupKeys, 1.0f,
          SharedImage{ring.Image(slot), ring.Terms(slot)}, lane);
    }
    arch::AsyncFence();
    arch::MbarrierArrive(ring.Filled(slot));
    arch::WarpSync();  // the raw place is free
  }

  __device__ __forceinline__ void Feed() {
    ReadPages(0);
    Copy<KSide, spec::kHeadDim>(args.k, 0, 0);
    Copy<VSide, spec::kValueDim>(args.v, 0, 1);
    ReadPages(1);
    ExtendRing::Slot slot;
    u32 raw = 0;  // of the side that is converted next
    const auto next = [](u32 place) {
      return place + 1 == ExtendRing::kRaws ? 0 : place + 1;
    };
#pragma unroll 1
    for (int tile = 0; tile < work.tiles; ++tile) {
      Copy<KSide, spec::kHeadDim>(args.k, tile + 1, next(next(raw)));
      ConvertSide<KSide, spec::kHeadDim, false>(slot, raw);
      slot.Next();
      raw = next(raw);
      Copy<VSide, spec::kValueDim>(args.v, tile + 1, next(next(raw)));
      ReadPages(tile + 2);
      ConvertSide<VSide, spec::kValueDim, true>(slot, raw);
      slot.Next();
      raw = next(raw);
    }
    arch::CpAsyncWait<0>();
  }
};

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_FEEDER_CUH_
