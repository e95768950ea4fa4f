// Keys of one side (K or V) of a paged cache in shared memory, in groups of 16
// that one warp copies.
//
//   one group of 16 keys, e4m3_row at head_dim 128:
//   codes         key 0   8 units of 16 bytes    unit u of key i is at unit
//                 ...                            u ^ (i % 8): the rows a warp
//                 key 15                         reads meet other banks
//   row scales    16 x f32                       where the side has them; each
//                                                with its f32 minimum behind it
//   block scales  16 x head_dim / block bytes    likewise, rows padded to 4
//
// Rows of several 128-byte lines lie line by line: line 0 of all keys, then
// line 1. Rows of whole 64-byte lines likewise, two keys to 128 bytes and unit
// u at u ^ (i / 2 % 4). This is how tensor copies write a box of 16 keys. Other
// rows are padded to an odd number of units.
//
// Codes of keys outside the visible range, or that no query row sees, are never
// read: their rows, and their scales, are zeros.
#ifndef KVFORGE_TEMPLATES_OPS_KEY_TILE_CUH_
#define KVFORGE_TEMPLATES_OPS_KEY_TILE_CUH_

#include "kernels/cache_view.h"
#include "ops/access.cuh"

namespace kvforge::ops {

inline constexpr int kGroupKeys = 16;  // k of one m16n8k16 product of p and V

// Layout of one group: of its codes and of its scales, each from their first
// byte. Side: KSide or VSide of the spec.
template <class Side, int kDim>
struct KeyGroup {
  static constexpr int kCodeBytes = kDim * Side::kCodeBits / 8;
  static constexpr int kLineBytes = kCodeBytes % 128 == 0  ? 128
                                    : kCodeBytes % 64 == 0 ? 64
                                                           : 0;
  // Bytes from key to key; of one line where rows lie line by line.
  static constexpr int kCodePitch = kLineBytes > 0
                                        ? kLineBytes
                                        : 16 * ((kCodeBytes + 15) / 16 | 1);
  static constexpr int kLines = kLineBytes > 0 ? kCodeBytes / kCodePitch : 1;
  static constexpr int kCodesBytes = kLines * kGroupKeys * kCodePitch;
  // Whether the group is as a tensor copy of a box of rows leaves it.
  static constexpr bool kIsBox = kCodeBytes == kLines * kCodePitch;

  static constexpr int kBlockScaleBytes =
      Side::kBlock > 0 ? kDim / (Side::kBlock > 0 ? Side::kBlock : 1) : 0;
  static constexpr int kBlockScalePitch = (kBlockScaleBytes + 3) / 4 * 4;
  // f32 scale of a key, then its minimum.
  static constexpr int kRowScaleBytes =
      Side::kRowMinimum ? 8 : (Side::kRowScale ? 4 : 0);
  static_assert(Side::kRowScale || !Side::kRowMinimum);
  static constexpr int kBlockScales = kGroupKeys * kRowScaleBytes;
  static constexpr int kScaleBytes =
      kBlockScales + kGroupKeys * kBlockScalePitch;
  static constexpr int kBytes = kCodesBytes + kScaleBytes;
  static_assert(kCodesBytes % 16 == 0 && kScaleBytes % 16 == 0);

  // What a key's offsets inside a line are combined with.
  static __device__ __forceinline__ constexpr int Swizzle(int key) {
    return kLineBytes == 128  ? key % 8 * 16
           : kLineBytes == 64 ? key / 2 % 4 * 16
                              : 0;
  }
  // Offset of byte `fixed` + `inside` of a key's row. Within a line their bits
  // are apart; `fixed` is a constant, so that what lanes read shares a base.
  static __device__ __forceinline__ u32 Offset(int key, int inside,
                                               int fixed = 0) {
    if constexpr (kLineBytes == 0) return key * kCodePitch + fixed + inside;
    constexpr int kLine = kCodePitch;
    const int line = inside / kLine + fixed / kLine;
    const int unit = (inside % kLine ^ Swizzle(key)) ^ (fixed % kLine);
    return line * (kGroupKeys * kLine) + key * kLine + unit;
  }
};

// Rows of kBytes side by side.
template <int kBytes>
struct PlainRows {
  static constexpr int kCodePitch = kBytes;
  static __device__ __forceinline__ constexpr int Swizzle(int) { return 0; }
  static __device__ __forceinline__ u32 Offset(int row, int inside) {
    return row * kBytes + inside;
  }
};

// Where a group lies in shared memory.
struct GroupPlace {
  u32 codes;
  u32 row_scales;
  u32 block_scales;
  u32 row_pitch;    // bytes between the row scales of neighbouring keys
  u32 block_pitch;  // likewise of their block scales
};

// Of a group whose scales follow its codes.
template <class Group>
__device__ __forceinline__ GroupPlace PlaceAt(u32 group) {
  const u32 row_scales = group + Group::kCodesBytes;
  return {group, row_scales, row_scales + Group::kBlockScales,
          Group::kRowScaleBytes, Group::kBlockScalePitch};
}

// What a key's row is multiplied by and what is added to it; 1 and 0 where the
// side has none.
struct RowTerms {
  float scale = 1.0f;
  float minimum = 0.0f;
};

template <class Side, int kDim>
__device__ __forceinline__ RowTerms LoadRowTerms(GroupPlace group, int key) {
  RowTerms terms;
  const u32 address = group.row_scales + key * group.row_pitch;
  if constexpr (Side::kRowMinimum) {
    const U32x2 words = arch::LoadShared<U32x2>(address);
    terms.scale = arch::FromBits(words.v[0]);
    terms.minimum = arch::FromBits(words.v[1]);
  } else if constexpr (Side::kRowScale) {
    terms.scale = arch::LoadShared<float>(address);
  }
  return terms;
}

// Of keys `key`, even, and key + 1, whose scales are side by side.
template <class Side, int kDim>
__device__ __forceinline__ void LoadRowTermsPair(GroupPlace group, int key,
                                                 RowTerms (&terms)[2]) {
  using Group = KeyGroup<Side, kDim>;
  const u32 address = group.row_scales + key * Group::kRowScaleBytes;
  if constexpr (Side::kRowMinimum) {
    const U32x4 words = arch::LoadShared<U32x4>(address);
    terms[0] = {arch::FromBits(words.v[0]), arch::FromBits(words.v[1])};
    terms[1] = {arch::FromBits(words.v[2]), arch::FromBits(words.v[3])};
  } else if constexpr (Side::kRowScale) {
    const U32x2 words = arch::LoadShared<U32x2>(address);
    terms[0].scale = arch::FromBits(words.v[0]);
    terms[1].scale = arch::FromBits(words.v[1]);
  }
}

// Whether block scales of a side are factors in f32, of partial dots over a
// block's channels (K) or of the weights of its channels (V).
template <class Side>
inline constexpr bool kBlockFactors =
    Side::kBlock > 0 && !Side::kBlockInOperand;

// The factor of one block of a key's channels.
template <class Side, int kDim>
__device__ __forceinline__ float LoadBlockFactor(GroupPlace group, int key,
                                                 int block) {
  return Side::BlockFactor(arch::LoadShared<u8>(
      group.block_scales + key * group.block_pitch + block));
}

// The pages that a warp's next group lies in: lane l holds the page of key
// l % 16 of the group. Fetched one group ahead of its use. With kPicked the
// keys to copy are further narrowed to those with a bit in `picked`.
template <int kPageSize, bool kPicked = false>
struct GroupPages {
  int page = 0;
  u32 picked = 0xffffu;  // bit i: key i of the group

  __device__ __forceinline__ bool Picks(int i) const {
    return !kPicked || (picked >> i & 1u) != 0;
  }

  // keys [first, end) of the sequence may be read; others get page 0.
  __device__ __forceinline__ void Fetch(const int* table, int group_key,
                                        int first, int end, int lane) {
    int key = group_key + lane % kGroupKeys;
    if (kPageSize % kGroupKeys == 0) {
      // One page holds the whole group: any visible key names it.
      key = group_key > first ? group_key : first;
    }
    page = 0;
    // Of a group without a picked key the page may not exist.
    const bool exists = kPageSize % kGroupKeys == 0 ? !kPicked || picked != 0
                                                    : Picks(lane % kGroupKeys);
    if (key >= first && key < end && exists) {
      page = arch::LoadGlobal<int>(table + key / kPageSize);
    }
  }
};

// 64 neighbouring entries of a sequence's page table in a warp's registers, so
// that the pages of the groups to come are there before they are needed. A warp
// that jumps about waits for each load instead.
template <int kPageSize>
struct PageWindow {
  int base = -64;  // the entry that lane 0 holds in `near`
  int near = 0;    // entries base + lane
  int far = 0;     // entries base + 32 + lane

  // Forgets what it holds: the next sequence's table follows.
  __device__ __forceinline__ void Clear() { base = -64; }

  // Pages of the 16 keys from group_key on: lane l's is that of key l % 16.
  // Entries at `end_entry` and beyond are not read; a page of theirs is
  // anything. All lanes.
  __device__ __forceinline__ int Pages(const int* table, int group_key,
                                       int end_entry, int lane) {
    const int first = group_key / kPageSize;
    Move(table, first, end_entry, lane);
    if constexpr (kPageSize % kGroupKeys == 0) {
      return arch::ShuffleFrom(near, first - base);
    } else {
      return Page((group_key + lane % kGroupKeys) / kPageSize);
    }
  }

  // From here on `first` and 31 entries behind it are held. All lanes.
  __device__ __forceinline__ void Move(const int* table, int first,
                                       int end_entry, int lane) {
    const auto load = [&](int entry) {
      return entry < end_entry ? arch::LoadGlobal<int>(table + entry) : 0;
    };
    const int ahead = first - base;
    if (ahead < 0 || ahead >= 32) {
      if (ahead >= 32 && ahead < 64) {
        base += 32;
        near = far;
      } else {
        base = first / 32 * 32;
        near = load(base + lane);
      }
      far = load(base + 32 + lane);
    }
  }

  // The page of an entry that is held, each lane its own. All lanes.
  __device__ __forceinline__ int Page(int entry) const {
    const int low = arch::ShuffleFrom(near, (entry - base) & 31);
    const int high = arch::ShuffleFrom(far, (entry - base) & 31);
    return entry - base < 32 ? low : high;
  }
};

// Copies one strided row part of 16 keys, kRowBytes each, kWidth at a time, to
// `to` in the layout Rows (KeyGroup or PlainRows). Only 16-byte copies are
// unrolled: narrow ones would fill the registers with addresses.
template <int kWidth, int kRowBytes, class Rows, int kPageSize, bool kPicked>
__device__ __forceinline__ void CopyRows(const StridedBytes& from, int head,
                                         GroupPages<kPageSize, kPicked> pages,
                                         int group_key, int first, int end,
                                         u32 to, int lane) {
  static_assert(kRowBytes % kWidth == 0);
  constexpr int kParts = kRowBytes / kWidth;
  constexpr int kUnroll = kWidth == 16 ? 4 : 1;
  const u8* base = from.base + head * from.head_stride;
  const auto copy = [&](u32 target, const u8* address, int key) {
    const bool valid =
        key >= first && key < end && pages.Picks(key - group_key);
    if constexpr (kWidth >= 4) {
      arch::CpAsync<kWidth>(target, address, valid);
    } else {
      const u8 byte = valid ? arch::LoadGlobal<u8>(address) : u8{0};
      arch::StoreShared<u8>(target, byte);
    }
  };
  if constexpr (kPageSize % kGroupKeys == 0 && 32 % kParts == 0) {
    // One page, and a lane keeps its part: addresses advance by constant rows.
    constexpr int kRows = 32 / kParts < kGroupKeys ? 32 / kParts : kGroupKeys;
    const int lane_row = lane / kParts;
    const int part = lane % kParts;
    int key = group_key + lane_row;
    const u8* address = base + pages.page * from.page_stride +
                        key % kPageSize * from.slot_stride + part * kWidth;
    const u32 offset = Rows::Offset(lane_row, part * kWidth);
    if (lane_row < kRows) {
#pragma unroll kUnroll
      for (int row = 0; row < kGroupKeys; row += kRows) {
        copy(to + (offset ^ Rows::Swizzle(row)) + row * Rows::kCodePitch,
             address, key);
        address += kRows * from.slot_stride;
        key += kRows;
      }
    }
  } else {
    constexpr int kCopies = kGroupKeys * kParts;
#pragma unroll 1
    for (int i = 0; i < kCopies; i += 32) {
      const int row = (i + lane) / kParts % kGroupKeys;
      const int part = (i + lane) % kParts;
      const int key = group_key + row;
      const int page = kPageSize % kGroupKeys == 0
                           ? pages.page
                           : arch::ShuffleFrom(pages.page, row);
      if (i + lane < kCopies) {
        copy(to + Rows::Offset(row, part * kWidth),
             base + page * from.page_stride +
                 key % kPageSize * from.slot_stride + part * kWidth,
             key);
      }
    }
  }
}

// Starts the copy of the codes of keys group_key .. + 15 to shared memory at
// `to`; keys outside [first, end) or not picked become zeros. The caller waits.
// All lanes.
template <class Side, int kDim, int kPageSize, bool kPicked>
__device__ __forceinline__ void CopyKeyCodes(
    const CacheView& view, int head, GroupPages<kPageSize, kPicked> pages,
    int group_key, int first, int end, u32 to, int lane) {
  using Group = KeyGroup<Side, kDim>;
  constexpr int kBytes = Group::kCodeBytes;
  if (kBytes % 16 == 0 && view.code_bytes >= 16) {
    CopyRows<kBytes % 16 == 0 ? 16 : 4, kBytes, Group>(
        view.codes, head, pages, group_key, first, end, to, lane);
  } else if (kBytes % 8 == 0 && view.code_bytes >= 8) {
    CopyRows<kBytes % 8 == 0 ? 8 : 4, kBytes, Group>(
        view.codes, head, pages, group_key, first, end, to, lane);
  } else {
    CopyRows<4, kBytes, Group>(view.codes, head, pages, group_key, first, end,
                               to, lane);
  }
}

// Likewise of their block scales, where there are any.
template <class Side, int kDim, int kPageSize, bool kPicked>
__device__ __forceinline__ void CopyBlockScales(
    const CacheView& view, int head, GroupPages<kPageSize, kPicked> pages,
    int group_key, int first, int end, u32 to, int lane) {
  using Group = KeyGroup<Side, kDim>;
  if constexpr (Side::kBlock > 0) {
    constexpr int kBytes = Group::kBlockScaleBytes;
    using Rows = PlainRows<Group::kBlockScalePitch>;
    if (kBytes % 8 == 0 && view.block_scale_bytes >= 8) {
      CopyRows<kBytes % 8 == 0 ? 8 : 1, kBytes, Rows>(
          view.block_scale, head, pages, group_key, first, end, to, lane);
    } else if (kBytes % 4 == 0 && view.block_scale_bytes >= 4) {
      CopyRows<kBytes % 4 == 0 ? 4 : 1, kBytes, Rows>(
          view.block_scale, head, pages, group_key, first, end, to, lane);
    } else {
      CopyRows<1, kBytes, Rows>(view.block_scale, head, pages, group_key, first,
                                end, to, lane);
    }
  }
}

template <class Side, int kDim, int kPageSize, bool kPicked>
__device__ __forceinline__ void CopyKeyGroup(
    const CacheView& view, int head, GroupPages<kPageSize, kPicked> pages,
    int group_key, int first, int end, GroupPlace to, int lane) {
  CopyKeyCodes<Side, kDim>(view, head, pages, group_key, first, end, to.codes,
                           lane);
  if constexpr (Side::kRowScale) {
    constexpr int kBytes = KeyGroup<Side, kDim>::kRowScaleBytes;
    CopyRows<4, kBytes, PlainRows<kBytes>>(view.row_scale, head, pages,
                                           group_key, first, end, to.row_scales,
                                           lane);
  }
  CopyBlockScales<Side, kDim>(view, head, pages, group_key, first, end,
                              to.block_scales, lane);
}

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_KEY_TILE_CUH_
