// One warp's copies of one side (K or V), group after group: what does not
// change between groups is kept in registers, so that a group costs little more
// than its copies.
#ifndef KVFORGE_TEMPLATES_OPS_KEY_COPIER_CUH_
#define KVFORGE_TEMPLATES_OPS_KEY_COPIER_CUH_

#include "ops/key_tile.cuh"

namespace kvforge::ops {

// Rows of at most 8 bytes of 2^shift neighbouring heads, kWidth bytes at a
// time: a lane takes whole rows, neighbours in memory where there are any,
// since a row is less than a sector.
template <int kRowBytes, int kWidth>
struct NarrowRows {
  static_assert((kRowBytes == 4 || kRowBytes == 8) && kRowBytes % kWidth == 0);
  const u8* from;  // this lane's first row, of head 0 and page 0
  i64 step;        // bytes to its next row
  u32 to;          // and their places in the run's first piece
  u32 to_step;
  int row;  // of the group
  int row_step;

  // `head_pitch`, `row_pitch`: bytes from head to head and from row to row.
  __device__ __forceinline__ void Start(const StridedBytes& plane, int shift,
                                        u32 head_pitch, u32 row_pitch,
                                        int lane) {
    const bool heads_inside = plane.head_stride <= plane.slot_stride;
    const int head =
        heads_inside ? lane & ((1 << shift) - 1) : lane / kGroupKeys;
    row = heads_inside ? lane >> shift : lane % kGroupKeys;
    row_step = heads_inside ? 32 >> shift : 0;
    const int head_step = heads_inside ? 0 : 32 / kGroupKeys;
    from = plane.base + head * plane.head_stride + row * plane.slot_stride;
    step = row_step * plane.slot_stride + head_step * plane.head_stride;
    to = head * head_pitch + row * row_pitch;
    to_step = row_step * row_pitch + head_step * head_pitch;
  }
  // `offset`: bytes from page 0 and head 0 to the group; `valid`: a bit a row.
  __device__ __forceinline__ void Copy(i64 offset, u32 piece, int shift,
                                       u32 valid, int lane) const {
    const u8* address = from + offset;
    u32 target = piece + to;
    u32 rows = valid >> row;
    if (lane >= kGroupKeys << shift) return;  // of one head: half the lanes
#pragma unroll 1
    for (int i = 0; i < kGroupKeys << shift; i += 32) {
#pragma unroll
      for (int byte = 0; byte < kRowBytes; byte += kWidth) {
        arch::CpAsync<kWidth>(target + byte, address + byte, (rows & 1u) != 0);
      }
      address += step;
      target += to_step;
      rows >>= row_step;
    }
  }
};

// Needs pages of whole groups, 16-byte accesses to codes, a part of a row for
// each lane and narrow sidecars: CanCopy. Others go by CopyKeyGroup.
template <class Side, int kDim, int kPageSize>
struct KeyCopier {
  using Group = KeyGroup<Side, kDim>;
  static constexpr int kParts = Group::kCodeBytes / 16;  // of a row
  static constexpr bool kPossible =
      kPageSize % kGroupKeys == 0 && Group::kCodeBytes % 16 == 0 &&
      32 % (kParts > 0 ? kParts : 1) == 0 &&
      (Side::kBlock == 0 || Group::kBlockScaleBytes == 4 ||
       Group::kBlockScaleBytes == 8);
  // Rows that the warp copies at a time, and how often.
  static constexpr int kRows =
      !kPossible ? 16 : (32 / kParts < kGroupKeys ? 32 / kParts : kGroupKeys);
  static constexpr int kTimes = kGroupKeys / kRows;
  static constexpr int kBlockRowBytes =
      kPossible && Side::kBlock > 0 ? Group::kBlockScaleBytes : 4;

  const u8* codes;  // this lane's part of its first row, of head 0 and page 0
  i64 row_step;
  u32 to;  // of the place of that part, from the group's first byte
  int row;
  NarrowRows<Side::kRowMinimum ? 8 : 4, 4> row_scales;  // 4-byte aligned
  NarrowRows<kBlockRowBytes, kBlockRowBytes> block_scales;

  static __device__ __forceinline__ bool CanCopy(const CacheView& view) {
    return kPossible && view.code_bytes >= 16 &&
           (Side::kBlock == 0 || view.block_scale_bytes >= kBlockRowBytes);
  }
  // `step`: between the places of neighbouring heads.
  __device__ __forceinline__ void Start(const CacheView& view, int shift,
                                        GroupPlace step, int lane) {
    row = lane / kParts;
    codes = view.codes.base + row * view.codes.slot_stride + lane % kParts * 16;
    row_step = kRows * view.codes.slot_stride;
    to = Group::Offset(row, lane % kParts * 16);
    if constexpr (Side::kRowScale) {
      row_scales.Start(view.row_scale, shift, step.row_scales, step.row_pitch,
                       lane);
    }
    if constexpr (Side::kBlock > 0) {
      block_scales.Start(view.block_scale, shift, step.block_scales,
                         Group::kBlockScalePitch, lane);
    }
  }
  // Starts the copies of one group of 2^shift heads; `slot`: of its first key
  // in `page`; `piece`: the first head's place. Rows that are not valid get
  // zeros.
  __device__ __forceinline__ void Copy(const CacheView& view, int head,
                                       int shift, int page, int slot, u32 valid,
                                       GroupPlace piece, GroupPlace step,
                                       int lane) const {
    const auto offset = [&](const StridedBytes& plane) {
      return page * plane.page_stride + slot * plane.slot_stride +
             head * plane.head_stride;
    };
    const u8* address = codes + offset(view.codes);
    u32 target = piece.codes;
    const u32 rows = valid >> row;
    if (row < kGroupKeys) {
#pragma unroll 1
      for (int i = 0; i < 1 << shift; ++i) {
        const u8* row_address = address;
#pragma unroll
        for (int time = 0; time < kTimes; ++time) {
          arch::CpAsyncLine(target + (to ^ Group::Swizzle(time * kRows)) +
                                time * kRows * Group::kCodePitch,
                            row_address, (rows >> (time * kRows) & 1u) != 0);
          row_address += row_step;
        }
        address += view.codes.head_stride;
        target += step.codes;
      }
    }
    if constexpr (Side::kRowScale) {
      row_scales.Copy(offset(view.row_scale), piece.row_scales, shift, valid,
                      lane);
    }
    if constexpr (Side::kBlock > 0) {
      block_scales.Copy(offset(view.block_scale), piece.block_scales, shift,
                        valid, lane);
    }
  }
};

// Bit i: whether key group_key + i is in [first, end).
__device__ __forceinline__ u32 ValidRows(int group_key, int first, int end) {
  if (first <= group_key && end - group_key >= kGroupKeys) return 0xffffu;
  const int low = first > group_key ? first - group_key : 0;
  const int high = end - group_key < kGroupKeys ? end - group_key : kGroupKeys;
  if (low >= high) return 0;
  return (0xffffu >> (kGroupKeys - high + low)) << low;
}

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_KEY_COPIER_CUH_
