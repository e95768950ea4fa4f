// Checks of launch arguments that the host can make before anything runs, and
// the access widths that follow from bases and strides. Every refusal says what
// was asked, what is supported and what to do. Every launch pays for them:
// nothing is allocated and no text is made unless a check refuses.
#ifndef KVFORGE_KERNELS_ARGUMENT_CHECKS_H_
#define KVFORGE_KERNELS_ARGUMENT_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/formats/format.h"
#include "templates/kernels/cache_view.h"
#include "templates/kernels/store_args.h"

namespace kvforge {

// Rows of one plane as the overlap check sees them: `row_bytes` contiguous
// bytes at page * strides[0] + slot * strides[1] + head * strides[2].
struct RowGrid {
  int64_t row_bytes;
  int64_t extents[3];
  int64_t strides[3];
};

// Alignment in bytes of rows that kernels read or write whole: q, out and the
// partial results.
inline constexpr int kRowAlignment = 16;

// Number of pages where the caller's arguments do not say it.
inline constexpr int64_t kUnknownPages = int64_t{1} << 31;

// True if two rows share a byte. Exact; constant time for ordinary layouts,
// else slots * heads steps.
bool RowsOverlap(const RowGrid& grid);

// What the checks below say; out of line.
absl::Status PointerError(absl::string_view kernel, absl::string_view name,
                          const void* pointer, int alignment,
                          absl::string_view what);
absl::Status CountError(absl::string_view kernel, absl::string_view name,
                        int64_t value);

// Not null, and a multiple of `alignment`, a power of two.
inline bool PointsToMultiple(const void* pointer, int alignment) {
  return pointer != nullptr && (reinterpret_cast<uintptr_t>(pointer) &
                                static_cast<uintptr_t>(alignment - 1)) == 0;
}

// kInvalidArgument if `pointer` is null or not a multiple of `alignment`.
// `what` says what it must point to.
inline absl::Status CheckPointer(absl::string_view kernel,
                                 absl::string_view name, const void* pointer,
                                 int alignment, absl::string_view what) {
  if (PointsToMultiple(pointer, alignment)) return absl::OkStatus();
  return PointerError(kernel, name, pointer, alignment, what);
}

// kInvalidArgument if `value` is negative.
inline absl::Status CheckCount(absl::string_view kernel, absl::string_view name,
                               int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return CountError(kernel, name, value);
}

// The first of `widths` (bytes, powers of two, widest first) that divides the
// address, every stride and the row; kInvalidArgument with the numbers if none
// does.
absl::StatusOr<int> WidestAccess(absl::string_view kernel,
                                 absl::string_view name, const void* base,
                                 absl::Span<const int64_t> strides,
                                 int64_t row_bytes,
                                 absl::Span<const int> widths);

// Checks one side of a cache against its format and fills in code_bytes and
// block_scale_bytes. `side` is "k" or "v".
absl::Status CheckCacheView(absl::string_view kernel, absl::string_view side,
                            const KvFormat& format, int head_dim,
                            int64_t num_pages, int page_size, int num_kv_heads,
                            CacheView& view);

// Checks source rows of a store and fills in access_bytes.
absl::Status CheckSourceRows(absl::string_view kernel, absl::string_view name,
                             int64_t num_tokens, int num_kv_heads,
                             int element_bytes, int head_dim, SourceRows& rows);

// Checks rows [tokens, heads, row_bytes] that a kernel writes (`written`: rows
// may not overlap) or reads. Bases and strides must be multiples of
// `alignment`.
absl::Status CheckTokenRows(absl::string_view kernel, absl::string_view name,
                            const void* base, int64_t token_stride,
                            int64_t head_stride, int64_t tokens, int64_t heads,
                            int64_t row_bytes, int alignment, bool written);

// Checks log-sum-exps [tokens, heads] that a kernel writes: heads adjacent,
// tokens `token_stride` floats apart. Null: none are written.
absl::Status CheckLseRows(absl::string_view kernel, const float* lse,
                          int64_t token_stride, int64_t tokens, int64_t heads);

// kInvalidArgument if a 1-D grid of `blocks` is more than a launch can have.
absl::Status CheckGrid(absl::string_view kernel, int64_t blocks);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_ARGUMENT_CHECKS_H_
