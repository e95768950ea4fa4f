#include "kernels/key_maps.h"

#include <cstdint>
#include <optional>

#include "runtime/base/status_macros.h"
#include "runtime/tensor_map.h"

namespace kvforge {
namespace {

constexpr int kGroupKeys = 16;
constexpr int kStrideUnit = 16;
constexpr int64_t kMaxStride = (int64_t{1} << 40) - kStrideUnit;
// Pages are not counted: those that the page table names exist.
constexpr unsigned kAnyPages = 0x7fffffff;

// Bytes of the lines that rows are cut into (templates/ops/key_tile.cuh); 0
// where a row has other bytes and is no box.
int LineBytes(int code_bytes) {
  if (code_bytes % 128 == 0) return 128;
  if (code_bytes % 64 == 0) return 64;
  // An odd number of 16-byte units needs no swizzle.
  return code_bytes % 16 == 0 && code_bytes / 16 % 2 == 1 ? code_bytes : 0;
}

// Of a dimension of `size`: along one of a single element nothing moves.
bool SetStride(int64_t stride, int64_t size, unsigned long long& to) {
  to = size == 1 ? kStrideUnit : stride;
  return size == 1 ||
         (stride > 0 && stride <= kMaxStride && stride % kStrideUnit == 0);
}

// Boxes of the codes of one side, of `box_heads` kv heads; nullopt where tensor
// copies cannot read them.
std::optional<TensorBox> BoxOfCodes(const KernelSpec& spec,
                                    const CacheView& view, int code_bytes,
                                    int num_kv_heads, unsigned box_heads) {
  const int line = LineBytes(code_bytes);
  if (line == 0 || view.code_bytes < kStrideUnit) return std::nullopt;
  const unsigned lines = code_bytes / line;
  const unsigned page_size = spec.page_size;
  const unsigned heads = num_kv_heads;
  TensorBox box = {
      .base = view.codes.base,
      .sizes = {static_cast<unsigned>(line), page_size, lines, heads,
                kAnyPages},
      .box = {static_cast<unsigned>(line), kGroupKeys, lines, box_heads, 1},
      .swizzle_bytes = line == 128 || line == 64 ? line : 0};
  if (!SetStride(view.codes.slot_stride, page_size, box.strides[0]) ||
      !SetStride(line, lines, box.strides[1]) ||
      !SetStride(view.codes.head_stride, heads, box.strides[2]) ||
      !SetStride(view.codes.page_stride, kAnyPages, box.strides[3])) {
    return std::nullopt;
  }
  return box;
}

// Of scales, `bytes` a key, for `heads` kv heads at a time.
std::optional<TensorBox> BoxOfScales(const KernelSpec& spec,
                                     const StridedBytes& plane, int bytes,
                                     int num_kv_heads, unsigned heads) {
  if ((bytes != 4 && bytes != 8) || spec.sparse_block > 0 ||
      reinterpret_cast<uintptr_t>(plane.base) % kStrideUnit != 0) {
    return std::nullopt;
  }
  const unsigned page_size = spec.page_size;
  const unsigned all_heads = num_kv_heads;
  TensorBox box = {.base = plane.base};
  bool fits;
  // What a copy writes starts at a multiple of 128 bytes, and so do its
  // neighbours in the stage.
  if (plane.head_stride <= plane.slot_stride) {
    box.sizes[0] = bytes * all_heads;
    box.sizes[1] = page_size;
    box.box[0] = bytes * heads;
    box.box[1] = kGroupKeys;
    fits = bytes * heads % kStrideUnit == 0 && plane.head_stride == bytes &&
           SetStride(plane.slot_stride, page_size, box.strides[0]);
  } else {
    box.sizes[0] = bytes * page_size;
    box.sizes[1] = all_heads;
    box.box[0] = bytes * kGroupKeys;
    box.box[1] = heads;
    fits = heads >= 2 && plane.slot_stride == bytes &&
           SetStride(plane.head_stride, all_heads, box.strides[0]);
  }
  for (int i = 2; i < 4; ++i) {
    box.sizes[i] = box.box[i] = 1;
    box.strides[i - 1] = kStrideUnit;
  }
  box.sizes[4] = kAnyPages;
  box.box[4] = 1;
  if (!fits || !SetStride(plane.page_stride, kAnyPages, box.strides[3])) {
    return std::nullopt;
  }
  return box;
}

}  // namespace

absl::Status MakeKeyMaps(const PreparedKernel& decode, const DecodeArgs& args,
                         ViewFacts& facts) {
  facts.boxes = 0;
  const KernelSpec& spec = decode.spec();
  if (spec.page_size % kGroupKeys != 0 || !decode.has_tensor_copies()) {
    return absl::OkStatus();
  }
  const unsigned heads = 1u << args.heads_per_block_log2;
  const unsigned code_heads = spec.sparse_block > 0 ? 1 : heads;
  struct Side {
    const CacheView& view;
    const KvFormat& format;
    int dim;
    int boxes[3];  // bits: of codes, of row scales, of block scales
    TensorMap* maps[3];
  };
  const Side sides[] = {
      {args.k,
       *spec.k_format,
       spec.head_dim,
       {kBoxesOfK, kBoxesOfKScales, kBoxesOfKBlocks},
       {&facts.k_map, &facts.k_scale_map, &facts.k_block_map}},
      {args.v,
       *spec.v_format,
       spec.v_head_dim,
       {kBoxesOfV, kBoxesOfVScales, kBoxesOfVBlocks},
       {&facts.v_map, &facts.v_scale_map, &facts.v_block_map}}};
  for (const Side& side : sides) {
    // Rows that are no boxes are copied by other warps, and so are their
    // scales.
    if (LineBytes(side.format.CodeBytes(side.dim)) == 0) continue;
    const std::optional<TensorBox> boxes[] = {
        BoxOfCodes(spec, side.view, side.format.CodeBytes(side.dim),
                   args.num_kv_heads, code_heads),
        BoxOfScales(spec, side.view.row_scale, side.format.RowScaleBytes(),
                    args.num_kv_heads, heads),
        BoxOfScales(spec, side.view.block_scale,
                    side.format.BlockScaleBytes(side.dim), args.num_kv_heads,
                    heads)};
    for (int i = 0; i < 3; ++i) {
      if (!boxes[i]) continue;
      RETURN_IF_ERROR(decode.EncodeMap(*boxes[i], *side.maps[i]));
      facts.boxes |= side.boxes[i];
    }
  }
  return absl::OkStatus();
}

void SetKeyMaps(const ViewFacts& facts, DecodeArgs& args) {
  args.boxes = facts.boxes;
  if (facts.boxes == 0) return;
  args.k_map = facts.k_map;
  args.v_map = facts.v_map;
  args.k_scale_map = facts.k_scale_map;
  args.v_scale_map = facts.v_scale_map;
  if ((facts.boxes & (kBoxesOfKBlocks | kBoxesOfVBlocks)) == 0) return;
  args.k_block_map = facts.k_block_map;
  args.v_block_map = facts.v_block_map;
}

}  // namespace kvforge
