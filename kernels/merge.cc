#include "kernels/merge.h"

#include "absl/strings/str_cat.h"
#include "kernels/argument_checks.h"
#include "runtime/base/status_macros.h"

namespace kvforge {

absl::Status RunMerge(const PreparedKernel& kernel, const MergeArgs& args,
                      void* stream) {
  const KernelSpec& spec = kernel.spec();
  if (spec.kernel != KernelKind::kMerge) {
    return absl::InvalidArgumentError(
        absl::StrCat("merge: the kernel is ", spec.Text(),
                     "; only merge kernels merge; prepare a merge spec"));
  }
  RETURN_IF_ERROR(CheckCount("merge", "rows", args.rows));
  RETURN_IF_ERROR(CheckCount("merge", "heads", args.heads));
  const int64_t rows = int64_t{args.rows} * args.heads;
  if (rows == 0) return absl::OkStatus();
  if (args.splits < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("merge: splits = ", args.splits,
                     " is out of range; 1 or more states can be merged; pass "
                     "the number of states in partial_out"));
  }
  const int element_bytes = DTypeBytes(spec.out);
  RETURN_IF_ERROR(CheckPointer("merge", "partial_out", args.partial_out, 16,
                               "f32 partial rows"));
  RETURN_IF_ERROR(CheckPointer("merge", "partial_lse", args.partial_lse, 4,
                               "f32 partial log-sum-exps"));
  RETURN_IF_ERROR(CheckTokenRows("merge", "out", args.out, args.out_row_stride,
                                 args.out_head_stride, args.rows, args.heads,
                                 int64_t{spec.head_dim} * element_bytes,
                                 kRowAlignment, /*written=*/true));
  RETURN_IF_ERROR(CheckLseRows("merge", args.lse, args.lse_row_stride,
                               args.rows, args.heads));
  const int64_t block_rows = kernel.tile().block_m;
  const int64_t blocks = (rows + block_rows - 1) / block_rows;
  RETURN_IF_ERROR(CheckGrid("merge", blocks));
  return kernel.Launch(blocks, &args, sizeof(args), stream);
}

}  // namespace kvforge
