#include "kernels/argument_checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

// Strides beyond this would overflow 64 bits once multiplied by an index.
constexpr int64_t kMaxStride = int64_t{1} << 46;
constexpr int64_t kMaxGridBlocks = (int64_t{1} << 31) - 1;

// Largest power of two that divides the address and every stride.
int64_t CommonAlignment(const void* base, absl::Span<const int64_t> strides) {
  uint64_t bits = reinterpret_cast<uintptr_t>(base);
  for (int64_t stride : strides) bits |= static_cast<uint64_t>(stride);
  return static_cast<int64_t>(bits & (~bits + 1));
}

absl::Status CheckStrides(absl::string_view kernel, absl::string_view name,
                          absl::Span<const int64_t> strides) {
  for (int64_t stride : strides) {
    if (stride >= -kMaxStride && stride <= kMaxStride) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        kernel, ": a stride of ", name, " is ", stride,
        " bytes; strides up to 2^46 are supported; pass strides in bytes of "
        "one page, slot, token or head"));
  }
  return absl::OkStatus();
}

// A dimension of one entry never multiplies its stride.
RowGrid WithoutUnusedStrides(RowGrid grid) {
  for (int i = 0; i < 3; ++i) {
    if (grid.extents[i] <= 1) grid.strides[i] = 0;
  }
  return grid;
}

absl::Status CheckOverlap(absl::string_view kernel, absl::string_view name,
                          const RowGrid& grid, absl::string_view stride_names) {
  if (!RowsOverlap(grid)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      kernel, ": rows of ", name, " overlap: ", grid.row_bytes,
      " bytes a row with ", stride_names, " strides ",
      absl::StrJoin(grid.strides, ", "),
      "; every row must have bytes of its own; make the strides those of the "
      "buffer that was allocated"));
}

// The plane of a view: pointer, strides, overlap. Returns the strides that are
// used.
absl::StatusOr<RowGrid> CheckPlane(absl::string_view kernel,
                                   absl::string_view name,
                                   const StridedBytes& plane, int64_t row_bytes,
                                   int64_t num_pages, int page_size,
                                   int num_kv_heads, absl::string_view what) {
  RETURN_IF_ERROR(
      CheckPointer(kernel, absl::StrCat(name, ".base"), plane.base, 1, what));
  RETURN_IF_ERROR(CheckStrides(
      kernel, name, {plane.page_stride, plane.slot_stride, plane.head_stride}));
  const RowGrid grid = WithoutUnusedStrides(
      {row_bytes,
       {num_pages, page_size, num_kv_heads},
       {plane.page_stride, plane.slot_stride, plane.head_stride}});
  RETURN_IF_ERROR(CheckOverlap(kernel, name, grid, "page, slot, head"));
  return grid;
}

}  // namespace

bool RowsOverlap(const RowGrid& grid) {
  std::array<int, 3> order = {0, 1, 2};
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return std::abs(grid.strides[a]) < std::abs(grid.strides[b]);
  });
  // Nested dimensions, each stride past everything the smaller ones span: the
  // layout of nearly every cache. unsigned: pages * stride may pass 2^63.
  uint64_t span = static_cast<uint64_t>(grid.row_bytes);
  bool nested = true;
  for (int i : order) {
    if (grid.extents[i] <= 1) continue;
    const uint64_t stride = static_cast<uint64_t>(std::abs(grid.strides[i]));
    if (stride < span) nested = false;
    if (i != order.back()) {
      span += stride * static_cast<uint64_t>(grid.extents[i] - 1);
    }
  }
  if (nested) return false;
  const int64_t pages = grid.extents[0], slots = grid.extents[1],
                heads = grid.extents[2];
  const int64_t page_stride = grid.strides[0];
  // Two rows meet iff some difference of indices, not all zero, moves by less
  // than a row. By symmetry the head difference is not negative.
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t slot = 1 - slots; slot < slots; ++slot) {
      const int64_t moved = slot * grid.strides[1] + head * grid.strides[2];
      const int64_t nearest = page_stride == 0 ? 0 : -moved / page_stride;
      for (int64_t page = nearest - 1; page <= nearest + 1; ++page) {
        if (std::abs(page) >= pages) continue;
        if (page == 0 && slot == 0 && head == 0) continue;
        if (std::abs(moved + page * page_stride) < grid.row_bytes) return true;
      }
    }
  }
  return false;
}

absl::Status CheckPointer(absl::string_view kernel, absl::string_view name,
                          const void* pointer, int alignment,
                          absl::string_view what) {
  if (pointer == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(kernel, ": ", name, " is null; it must point to ", what,
                     "; pass memory of the engine's target"));
  }
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  if (address % alignment != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        kernel, ": ", name, " is aligned to ", address & (~address + 1),
        " bytes; it must be a multiple of ", alignment, " for ", what,
        "; move the buffer or copy it"));
  }
  return absl::OkStatus();
}

absl::Status CheckCount(absl::string_view kernel, absl::string_view name,
                        int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      kernel, ": ", name, " = ", value,
      " is negative; 0 or more is supported; pass 0 to do nothing"));
}

absl::StatusOr<int> WidestAccess(absl::string_view kernel,
                                 absl::string_view name, const void* base,
                                 absl::Span<const int64_t> strides,
                                 int64_t row_bytes,
                                 absl::Span<const int> widths) {
  const int64_t alignment = CommonAlignment(base, strides);
  for (int width : widths) {
    if (alignment % width == 0 && row_bytes % width == 0) return width;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(kernel, ": base and strides of ", name, " are multiples of ",
                   alignment, " bytes only, its rows have ", row_bytes,
                   " bytes; accesses are ", absl::StrJoin(widths, ", "),
                   " bytes wide; align the base and every stride to ",
                   widths.back(), " bytes or more"));
}

absl::Status CheckCacheView(absl::string_view kernel, absl::string_view side,
                            const KvFormat& format, int head_dim,
                            int64_t num_pages, int page_size, int num_kv_heads,
                            CacheView& view) {
  const std::string codes = absl::StrCat(side, ".codes");
  ASSIGN_OR_RETURN(
      const RowGrid code_grid,
      CheckPlane(kernel, codes, view.codes, format.CodeBytes(head_dim),
                 num_pages, page_size, num_kv_heads, "the codes of page 0"));
  ASSIGN_OR_RETURN(
      view.code_bytes,
      WidestAccess(kernel, codes, view.codes.base, code_grid.strides,
                   code_grid.row_bytes, {16, 8, 4}));
  if (format.RowScaleBytes() > 0) {
    const std::string name = absl::StrCat(side, ".row_scale");
    ASSIGN_OR_RETURN(const RowGrid grid,
                     CheckPlane(kernel, name, view.row_scale,
                                format.RowScaleBytes(), num_pages, page_size,
                                num_kv_heads, "the f32 row scales of page 0"));
    RETURN_IF_ERROR(WidestAccess(kernel, name, view.row_scale.base,
                                 grid.strides, grid.row_bytes, {4})
                        .status());
  }
  view.block_scale_bytes = 1;
  if (format.BlockScaleBytes(head_dim) > 0) {
    const std::string name = absl::StrCat(side, ".block_scale");
    ASSIGN_OR_RETURN(
        const RowGrid grid,
        CheckPlane(kernel, name, view.block_scale,
                   format.BlockScaleBytes(head_dim), num_pages, page_size,
                   num_kv_heads, "the block scales of page 0"));
    ASSIGN_OR_RETURN(view.block_scale_bytes,
                     WidestAccess(kernel, name, view.block_scale.base,
                                  grid.strides, grid.row_bytes, {8, 4, 1}));
  }
  if (format.given_scale == GivenScale::kNone) return absl::OkStatus();
  if (format.given_scale == GivenScale::kHead) {
    return CheckPointer(
        kernel, absl::StrCat(side, ".scale_ptr"), view.scale_ptr, 4,
        absl::StrCat("the ", num_kv_heads, " f32 scales of the kv heads"));
  }
  if (format.given_scale == GivenScale::kChannel) {
    return CheckPointer(kernel, absl::StrCat(side, ".scale_ptr"),
                        view.scale_ptr, 4,
                        absl::StrCat("the f32 scales of the ", num_kv_heads,
                                     " kv heads' ", head_dim, " channels"));
  }
  if (view.scale_ptr != nullptr) {
    return CheckPointer(kernel, absl::StrCat(side, ".scale_ptr"),
                        view.scale_ptr, 4, "an f32 scale");
  }
  if (!(view.scale > 0) || !std::isfinite(view.scale)) {
    return absl::InvalidArgumentError(absl::StrCat(
        kernel, ": ", side, ".scale = ", view.scale, " with format ",
        std::string(format.name),
        "; the scale of this format is given and must be positive and finite; "
        "pass the checkpoint's ",
        side, "_scale, or 1"));
  }
  return absl::OkStatus();
}

absl::Status CheckSourceRows(absl::string_view kernel, absl::string_view name,
                             int64_t num_tokens, int num_kv_heads,
                             int element_bytes, int head_dim,
                             SourceRows& rows) {
  RETURN_IF_ERROR(CheckPointer(kernel, absl::StrCat(name, ".base"), rows.base,
                               1, "the first source row"));
  RETURN_IF_ERROR(
      CheckStrides(kernel, name, {rows.token_stride, rows.head_stride}));
  const RowGrid grid =
      WithoutUnusedStrides({int64_t{head_dim} * element_bytes,
                            {1, num_tokens, num_kv_heads},
                            {0, rows.token_stride, rows.head_stride}});
  static constexpr int kWidths[] = {16, 8, 4, 2};
  ASSIGN_OR_RETURN(
      rows.access_bytes,
      WidestAccess(kernel, name, rows.base, grid.strides, grid.row_bytes,
                   absl::MakeConstSpan(kWidths, element_bytes == 4 ? 3 : 4)));
  return absl::OkStatus();
}

absl::Status CheckTokenRows(absl::string_view kernel, absl::string_view name,
                            const void* base, int64_t token_stride,
                            int64_t head_stride, int64_t tokens, int64_t heads,
                            int64_t row_bytes, int alignment, bool written) {
  RETURN_IF_ERROR(CheckPointer(kernel, name, base, alignment,
                               written ? "the rows to write" : "its rows"));
  RETURN_IF_ERROR(CheckStrides(kernel, name, {token_stride, head_stride}));
  const RowGrid grid = WithoutUnusedStrides(
      {row_bytes, {1, tokens, heads}, {0, token_stride, head_stride}});
  RETURN_IF_ERROR(
      WidestAccess(kernel, name, base, grid.strides, row_bytes, {alignment})
          .status());
  if (!written) return absl::OkStatus();
  return CheckOverlap(kernel, name, grid, "page, token, head");
}

absl::Status CheckLseRows(absl::string_view kernel, const float* lse,
                          int64_t token_stride, int64_t tokens, int64_t heads) {
  if (lse == nullptr) return absl::OkStatus();
  // Times 4 it may not be an int64_t any more.
  RETURN_IF_ERROR(CheckStrides(kernel, "lse", {token_stride}));
  return CheckTokenRows(kernel, "lse", lse, token_stride * 4, 4, tokens, heads,
                        4, 4, /*written=*/true);
}

absl::Status CheckGrid(absl::string_view kernel, int64_t blocks) {
  if (blocks <= kMaxGridBlocks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      kernel, ": ", blocks, " blocks are needed; a launch can have ",
      kMaxGridBlocks, "; split the batch over several calls"));
}

}  // namespace kvforge
