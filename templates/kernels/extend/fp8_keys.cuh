// The producers of extend with fp8 products: codes of a tile's keys to images.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_FP8_KEYS_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_FP8_KEYS_CUH_

#include "kernels/extend/fp8_ring.cuh"
#include "kernels/extend/work.cuh"

namespace kvforge::kernels {

// V's scales below this count as it: a product with a code is then nothing
// beside any other, and the inverse is finite. What the store writes is above.
inline constexpr float kLeastValueScale = 0x1p-100f;

struct Fp8Producer {
  using Shape = ExtendShape;
  static constexpr int kWarps = 4;
  static constexpr int kWarpGroups = Shape::kGroups / kWarps;
  static_assert(kWarpGroups * ops::kGroupKeys == 32);
  // Tiles whose copies are under way while one is waited for.
  static constexpr int kAhead = Fp8Ring::kKeySlots - 1;

  const AttentionArgs& args;
  const ops::Sequence& sequence;
  const ExtendWork& work;
  const Fp8Ring& ring;
  int warp;
  int lane;
  // Of the tile to be copied next: lane l holds the page of key l % 16 of the
  // warp's group l / 16. Fetched a tile ahead: a copy waits for no load.
  int page = 0;

  // The warp's groups are kWarps apart.
  __device__ __forceinline__ int Group(int i) const {
    return warp + i * kWarps;
  }

  __device__ __forceinline__ void FetchPages(int tile) {
    if constexpr (!Shape::kPicked) {
      const int key = work.begin + tile * Fp8Ring::kKeys +
                      Group(lane / ops::kGroupKeys) * ops::kGroupKeys;
      ops::GroupPages<spec::kPageSize> pages;
      pages.Fetch(sequence.table, key, work.range.first, work.range.end, lane);
      page = pages.page;
    }
  }

  // Starts the copies of the warp's groups of a tile.
  __device__ __forceinline__ void Copy(int tile, Fp8Ring::KeySlot slot) {
#pragma unroll 1
    for (int i = 0; i < kWarpGroups; ++i) {
      const int group = Group(i);
      // What follows from it is not worked out ahead and kept.
      const int lane = Anew(this->lane);
      const int key =
          work.begin + tile * Fp8Ring::kKeys + group * ops::kGroupKeys;
      const int first = work.range.first;
      const int end = work.range.end;
      ops::GroupPages<spec::kPageSize, Shape::kPicked> pages;
      if constexpr (Shape::kPicked) {
        const ops::CustomMask mask =
            ops::MaskOf<spec::kCustomMask>(args, sequence);
        pages.picked = mask.Any16(work.first_query, work.last_query, key, lane);
        pages.Fetch(sequence.table, key, first, end, lane);
      } else {
        pages.page = arch::ShuffleFrom(
            page, i * ops::kGroupKeys + lane % ops::kGroupKeys);
      }
      const ops::GroupPlace raw = ring.Raw(slot, group);
      ops::CopyKeyCodes<KSide, spec::kHeadDim>(
          args.k, sequence.kv_head, pages, key, first, end,
          ring.Image(slot) + group * Shape::KGroup::kCodesBytes, lane);
      ops::CopyKeyCodes<VSide, spec::kValueDim>(
          args.v, sequence.kv_head, pages, key, first, end, raw.codes, lane);
      if constexpr (KSide::kRowScale) {
        ops::CopyRows<4, 4, TermPlace>(
            args.k.row_scale, sequence.kv_head, pages, key, first, end,
            ring.Terms(slot) + group * TermPlace::kGroupBytes, lane);
      }
      if constexpr (VSide::kRowScale) {
        ops::CopyRows<4, 4, ops::PlainRows<4>>(
            args.v.row_scale, sequence.kv_head, pages, key, first, end,
            raw.row_scales, lane);
      }
    }
  }

  // A raw group to its 16 bytes of every line of V's image. A transposed load
  // gives lane (g, t) the codes of channels 2g and 2g + 1 of keys 2t, 2t + 1
  // and 8 further: four bytes of either channel's line. They lie in the order
  // in which lane t of a consumer holds its weights. Of 16 channels the even
  // ones are lines 0 to 7, the odd ones lines 8 to 15: what is stored together
  // meets all banks.
  __device__ __forceinline__ void Transpose(u32 raw, int group,
                                            u32 image) const {
    using VGroup = Shape::VGroup;
    const int g = lane / 4;
    const int t = lane % 4;
    const int key = lane % 16;
    const u32 line =
        image + g * Fp8Ring::kLineBytes + ((group ^ g) * 16) + t * 4;
#pragma unroll
    for (int channel = 0; channel < spec::kValueDim; channel += 32) {
      u32 keys[4];
      arch::LdMatrix4Trans(keys,
                           raw + VGroup::Offset(key, lane / 16 * 16, channel));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u32 low = keys[2 * half];
        const u32 high = keys[2 * half + 1];
        const u32 to = line + (channel + 16 * half) * Fp8Ring::kLineBytes;
        arch::StoreShared(to, arch::BytePermute(low, high, 0x6420));
        arch::StoreShared(to + 8 * Fp8Ring::kLineBytes,
                          arch::BytePermute(low, high, 0x7531));
      }
    }
  }

  // Scales of a raw group to the terms of its keys. A scale that is NaN stands
  // beside codes that are NaN, and the denominator takes no part in it.
  __device__ __forceinline__ void ConvertTerms(u32 raw, int group,
                                               Fp8Ring::ValueSlot slot) const {
    if constexpr (VSide::kRowScale) {
      if (lane < ops::kGroupKeys) {
        const float scale =
            arch::Max(arch::Abs(arch::LoadShared<float>(raw + 4 * lane)),
                      kLeastValueScale);
        const float log2 = arch::Log2(scale);
        const u32 to =
            group * TermPlace::kGroupBytes + TermPlace::Offset(lane, 0);
        arch::StoreShared(ring.LogTerms(slot) + to, log2);
        arch::StoreShared(ring.InverseTerms(slot) + to, arch::Exp2(-log2));
      }
    }
  }

  __device__ __forceinline__ void Run() {
    Fp8Ring::KeySlot landed;
    Fp8Ring::KeySlot next;
    Fp8Ring::ValueSlot values;
    FetchPages(0);
#pragma unroll 1
    for (int tile = -kAhead; tile < work.tiles; ++tile) {
      if (tile >= 0) {
        arch::CpAsyncWait<kAhead - 1>();
        arch::AsyncFence();
        arch::MbarrierArrive(ring.Filled(landed));
        // Lanes read what others have copied.
        arch::WarpSync();
        ring.WaitUntilFree(values);
#pragma unroll 1
        for (int i = 0; i < kWarpGroups; ++i) {
          const ops::GroupPlace raw = ring.Raw(landed, Group(i));
          Transpose(raw.codes, Group(i), ring.Image(values));
          ConvertTerms(raw.row_scales, Group(i), values);
        }
        arch::AsyncFence();
        arch::MbarrierArrive(ring.Filled(values));
        landed.Next();
        values.Next();
      }
      const int ahead = tile + kAhead;
      if (ahead < work.tiles) {
        ring.WaitUntilFree(next);
        Copy(ahead, next);
        FetchPages(ahead + 1);
        next.Next();
      }
      arch::CpAsyncCommit();
    }
  }
};

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_FP8_KEYS_CUH_
