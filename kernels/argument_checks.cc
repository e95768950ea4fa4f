#include "kernels/argument_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

// Strides beyond this would overflow 64 bits once multiplied by an index.
constexpr int64_t kMaxStride = int64_t{1} << 46;
constexpr int64_t kMaxGridBlocks = (int64_t{1} << 31) - 1;

// Of one plane of a cache.
struct PlaneRule {
  absl::string_view field;       // of a CacheView
  absl::string_view what;        // its base points to
  absl::Span<const int> widths;  // of one access, bytes, widest first
};
constexpr int kCodeWidths[] = {16, 8, 4};
constexpr int kRowScaleWidths[] = {4};
constexpr int kBlockScaleWidths[] = {8, 4, 1};
constexpr PlaneRule kCodes = {".codes", "the codes of page 0", kCodeWidths};
constexpr PlaneRule kRowScales = {".row_scale", "the f32 row scales of page 0",
                                  kRowScaleWidths};
constexpr PlaneRule kBlockScales = {
    ".block_scale", "the block scales of page 0", kBlockScaleWidths};

// Bits of an address and of all strides: those below the lowest that is set
// are 0 in each of them.
uint64_t JoinedBits(const void* base, absl::Span<const int64_t> strides) {
  uint64_t bits = reinterpret_cast<uintptr_t>(base);
  for (int64_t stride : strides) bits |= static_cast<uint64_t>(stride);
  return bits;
}

// The first of `widths`, powers of two, that divides base, strides and row; 0
// if none does.
int WidestOf(absl::Span<const int> widths, const void* base,
             absl::Span<const int64_t> strides, int64_t row_bytes) {
  const uint64_t bits =
      JoinedBits(base, strides) | static_cast<uint64_t>(row_bytes);
  for (int width : widths) {
    if ((bits & static_cast<uint64_t>(width - 1)) == 0) return width;
  }
  return 0;
}

absl::Status WidthError(absl::string_view kernel, absl::string_view name,
                        const void* base, absl::Span<const int64_t> strides,
                        int64_t row_bytes, absl::Span<const int> widths) {
  const uint64_t bits = JoinedBits(base, strides);
  return absl::InvalidArgumentError(
      absl::StrCat(kernel, ": base and strides of ", name, " are multiples of ",
                   bits & (~bits + 1), " bytes only, its rows have ", row_bytes,
                   " bytes; accesses are ", absl::StrJoin(widths, ", "),
                   " bytes wide; align the base and every stride to ",
                   widths.back(), " bytes or more"));
}

// The first stride that is out of range, or null.
const int64_t* HugeStride(absl::Span<const int64_t> strides) {
  for (const int64_t& stride : strides) {
    if (stride < -kMaxStride || stride > kMaxStride) return &stride;
  }
  return nullptr;
}

absl::Status StrideError(absl::string_view kernel, absl::string_view name,
                         int64_t stride) {
  return absl::InvalidArgumentError(absl::StrCat(
      kernel, ": a stride of ", name, " is ", stride,
      " bytes; strides up to 2^46 are supported; pass strides in bytes of "
      "one page, slot, token or head"));
}

// A dimension of one entry never multiplies its stride.
void ClearUnusedStrides(RowGrid& grid) {
  for (int i = 0; i < 3; ++i) {
    if (grid.extents[i] <= 1) grid.strides[i] = 0;
  }
}

absl::Status OverlapError(absl::string_view kernel, absl::string_view name,
                          const RowGrid& grid, absl::string_view stride_names) {
  return absl::InvalidArgumentError(absl::StrCat(
      kernel, ": rows of ", name, " overlap: ", grid.row_bytes,
      " bytes a row with ", stride_names, " strides ",
      absl::StrJoin(grid.strides, ", "),
      "; every row must have bytes of its own; make the strides those of the "
      "buffer that was allocated"));
}

// A plane of a view, whose row and extents are those of `grid`; fills in the
// width of an access to it. Its name is put together for errors only.
absl::Status CheckPlane(absl::string_view kernel, absl::string_view side,
                        const PlaneRule& rule, const StridedBytes& plane,
                        RowGrid grid, int& access_bytes) {
  if (plane.base == nullptr) {
    return PointerError(kernel, absl::StrCat(side, rule.field, ".base"),
                        plane.base, 1, rule.what);
  }
  grid.strides[0] = plane.page_stride;
  grid.strides[1] = plane.slot_stride;
  grid.strides[2] = plane.head_stride;
  if (const int64_t* huge = HugeStride(grid.strides)) {
    return StrideError(kernel, absl::StrCat(side, rule.field), *huge);
  }
  ClearUnusedStrides(grid);
  if (RowsOverlap(grid)) {
    return OverlapError(kernel, absl::StrCat(side, rule.field), grid,
                        "page, slot, head");
  }
  access_bytes =
      WidestOf(rule.widths, plane.base, grid.strides, grid.row_bytes);
  if (access_bytes == 0) {
    return WidthError(kernel, absl::StrCat(side, rule.field), plane.base,
                      grid.strides, grid.row_bytes, rule.widths);
  }
  return absl::OkStatus();
}

// The scale of a format whose scale is given.
absl::Status CheckGivenScale(absl::string_view kernel, absl::string_view side,
                             const KvFormat& format, int head_dim,
                             int num_kv_heads, const CacheView& view) {
  if (format.given_scale == GivenScale::kTensor && view.scale_ptr == nullptr) {
    if (view.scale > 0 && std::isfinite(view.scale)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        kernel, ": ", side, ".scale = ", view.scale, " with format ",
        format.name,
        "; the scale of this format is given and must be positive and finite; "
        "pass the checkpoint's ",
        side, "_scale, or 1"));
  }
  if (PointsToMultiple(view.scale_ptr, 4)) return absl::OkStatus();
  const std::string what =
      format.given_scale == GivenScale::kTensor ? "an f32 scale"
      : format.given_scale == GivenScale::kHead
          ? absl::StrCat("the ", num_kv_heads, " f32 scales of the kv heads")
          : absl::StrCat("the f32 scales of the ", num_kv_heads, " kv heads' ",
                         head_dim, " channels");
  return PointerError(kernel, absl::StrCat(side, ".scale_ptr"), view.scale_ptr,
                      4, what);
}

struct Dimension {
  uint64_t stride, steps;
};

Dimension DimensionOf(const RowGrid& grid, int i) {
  // One without a step spans nothing, wherever it is.
  if (grid.extents[i] <= 1) return {std::numeric_limits<uint64_t>::max(), 0};
  return {static_cast<uint64_t>(std::abs(grid.strides[i])),
          static_cast<uint64_t>(grid.extents[i] - 1)};
}

void SortByStride(Dimension& a, Dimension& b) {
  if (a.stride > b.stride) std::swap(a, b);
}

// Dimensions nested in each other, each stride past everything that the smaller
// ones span: the layout of nearly every cache.
bool IsNested(const RowGrid& grid) {
  Dimension a = DimensionOf(grid, 0);
  Dimension b = DimensionOf(grid, 1);
  Dimension c = DimensionOf(grid, 2);
  SortByStride(a, b);
  SortByStride(b, c);
  SortByStride(a, b);
  // unsigned: pages * stride may pass 2^63.
  const uint64_t row = static_cast<uint64_t>(grid.row_bytes);
  const uint64_t rows_of_a = row + a.stride * a.steps;
  return a.stride >= row && b.stride >= rows_of_a &&
         c.stride >= rows_of_a + b.stride * b.steps;
}

}  // namespace

// A count times a stride.
__extension__ using Wide = __int128;

bool RowsOverlap(const RowGrid& rows) {
  if (IsNested(rows)) return false;
  // The dimension of most entries is solved for, the others are walked.
  RowGrid grid = rows;
  const auto most =
      std::max_element(std::begin(grid.extents), std::end(grid.extents)) -
      std::begin(grid.extents);
  std::swap(grid.extents[0], grid.extents[most]);
  std::swap(grid.strides[0], grid.strides[most]);
  const int64_t pages = grid.extents[0], slots = grid.extents[1],
                heads = grid.extents[2];
  const int64_t page_stride = pages <= 1 ? 0 : grid.strides[0];
  // Two rows meet iff some difference of indices, not all zero, moves by less
  // than a row. By symmetry the head difference is not negative.
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t slot = 1 - slots; slot < slots; ++slot) {
      const Wide moved =
          Wide{slot} * grid.strides[1] + Wide{head} * grid.strides[2];
      const Wide nearest = page_stride == 0 ? 0 : -moved / page_stride;
      for (Wide page = nearest - 1; page <= nearest + 1; ++page) {
        if (page >= pages || -page >= pages) continue;
        if (page == 0 && slot == 0 && head == 0) continue;
        const Wide apart = moved + page * page_stride;
        if (apart < grid.row_bytes && -apart < grid.row_bytes) return true;
      }
    }
  }
  return false;
}

absl::Status PointerError(absl::string_view kernel, absl::string_view name,
                          const void* pointer, int alignment,
                          absl::string_view what) {
  if (pointer == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(kernel, ": ", name, " is null; it must point to ", what,
                     "; pass memory of the engine's target"));
  }
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  return absl::InvalidArgumentError(absl::StrCat(
      kernel, ": ", name, " is aligned to ", address & (~address + 1),
      " bytes; it must be a multiple of ", alignment, " for ", what,
      "; move the buffer or copy it"));
}

absl::Status CountError(absl::string_view kernel, absl::string_view name,
                        int64_t value) {
  return absl::InvalidArgumentError(absl::StrCat(
      kernel, ": ", name, " = ", value,
      " is negative; 0 or more is supported; pass 0 to do nothing"));
}

absl::StatusOr<int> WidestAccess(absl::string_view kernel,
                                 absl::string_view name, const void* base,
                                 absl::Span<const int64_t> strides,
                                 int64_t row_bytes,
                                 absl::Span<const int> widths) {
  const int width = WidestOf(widths, base, strides, row_bytes);
  if (width != 0) return width;
  return WidthError(kernel, name, base, strides, row_bytes, widths);
}

absl::Status CheckCacheView(absl::string_view kernel, absl::string_view side,
                            const KvFormat& format, int head_dim,
                            int64_t num_pages, int page_size, int num_kv_heads,
                            CacheView& view) {
  RowGrid grid = {
      format.CodeBytes(head_dim), {num_pages, page_size, num_kv_heads}, {}};
  RETURN_IF_ERROR(
      CheckPlane(kernel, side, kCodes, view.codes, grid, view.code_bytes));
  grid.row_bytes = format.RowScaleBytes();
  if (grid.row_bytes > 0) {
    int access_bytes = 0;  // always 4
    RETURN_IF_ERROR(CheckPlane(kernel, side, kRowScales, view.row_scale, grid,
                               access_bytes));
  }
  view.block_scale_bytes = 1;
  grid.row_bytes = format.BlockScaleBytes(head_dim);
  if (grid.row_bytes > 0) {
    RETURN_IF_ERROR(CheckPlane(kernel, side, kBlockScales, view.block_scale,
                               grid, view.block_scale_bytes));
  }
  if (format.given_scale == GivenScale::kNone) return absl::OkStatus();
  return CheckGivenScale(kernel, side, format, head_dim, num_kv_heads, view);
}

absl::Status CheckSourceRows(absl::string_view kernel, absl::string_view name,
                             int64_t num_tokens, int num_kv_heads,
                             int element_bytes, int head_dim,
                             SourceRows& rows) {
  if (rows.base == nullptr) {
    return PointerError(kernel, absl::StrCat(name, ".base"), rows.base, 1,
                        "the first source row");
  }
  RowGrid grid = {int64_t{head_dim} * element_bytes,
                  {1, num_tokens, num_kv_heads},
                  {0, rows.token_stride, rows.head_stride}};
  if (const int64_t* huge = HugeStride(grid.strides)) {
    return StrideError(kernel, name, *huge);
  }
  ClearUnusedStrides(grid);
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
  RowGrid grid = {
      row_bytes, {1, tokens, heads}, {0, token_stride, head_stride}};
  if (const int64_t* huge = HugeStride(grid.strides)) {
    return StrideError(kernel, name, *huge);
  }
  ClearUnusedStrides(grid);
  RETURN_IF_ERROR(
      WidestAccess(kernel, name, base, grid.strides, row_bytes, {alignment})
          .status());
  if (!written || !RowsOverlap(grid)) return absl::OkStatus();
  return OverlapError(kernel, name, grid, "page, token, head");
}

absl::Status CheckLseRows(absl::string_view kernel, const float* lse,
                          int64_t token_stride, int64_t tokens, int64_t heads) {
  if (lse == nullptr) return absl::OkStatus();
  // Times 4 it may not be an int64_t any more.
  if (HugeStride({&token_stride, 1}) != nullptr) {
    return StrideError(kernel, "lse", token_stride);
  }
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
