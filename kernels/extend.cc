#include "kernels/extend.h"

#include "absl/strings/str_cat.h"
#include "kernels/argument_checks.h"
#include "kernels/attention.h"
#include "runtime/base/status_macros.h"

namespace kvforge {

absl::Status RunExtend(const PreparedKernel& kernel, const ExtendParams& params,
                       void* stream) {
  const KernelSpec& spec = kernel.spec();
  if (spec.kernel != KernelKind::kExtend) {
    return absl::InvalidArgumentError(
        absl::StrCat("extend: the kernel is ", spec.Text(),
                     "; only extend kernels extend; prepare an extend "
                     "spec"));
  }
  AttentionArgs args = params.args;
  RETURN_IF_ERROR(CheckAttentionCounts(spec, params.num_q_heads, args));
  if (args.batch == 0 || args.total_q == 0) return absl::OkStatus();
  RETURN_IF_ERROR(
      CheckAttention(spec, params.num_q_heads, /*needs_out=*/true, args));
  // Each sequence may leave one tile partly filled; the kernel finds its tile
  // in q_indptr, so the grid needs no length.
  const int64_t block_m = kernel.tile().block_m;
  const int64_t rows = int64_t{args.total_q} * spec.group;
  const int64_t tiles = (rows + block_m - 1) / block_m + args.batch;
  const int64_t blocks = args.num_kv_heads * tiles;
  RETURN_IF_ERROR(CheckGrid("extend", blocks));
  return kernel.Launch(blocks, &args, sizeof(args), stream);
}

}  // namespace kvforge
