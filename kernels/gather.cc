#include "kernels/gather.h"

#include "absl/strings/str_cat.h"
#include "kernels/argument_checks.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

absl::Status CheckGather(const KernelSpec& spec, GatherArgs& args) {
  const int64_t num_pages = args.num_slots / spec.page_size;
  const int64_t element_bytes = DTypeBytes(spec.type);
  RETURN_IF_ERROR(
      CheckPointer("gather", "slots", args.slots, 8, "i64 slots, one a row"));
  RETURN_IF_ERROR(CheckTokenRows(
      "gather", "k_out", args.k_out.base, args.k_out.token_stride,
      args.k_out.head_stride, args.num_rows, args.num_kv_heads,
      spec.head_dim * element_bytes, kRowAlignment, /*written=*/true));
  RETURN_IF_ERROR(CheckTokenRows(
      "gather", "v_out", args.v_out.base, args.v_out.token_stride,
      args.v_out.head_stride, args.num_rows, args.num_kv_heads,
      spec.v_head_dim * element_bytes, kRowAlignment, /*written=*/true));
  if (args.k_out.base == args.v_out.base) {
    return absl::InvalidArgumentError(
        "gather: k_out.base and v_out.base are the same address; rows of K and "
        "of V are written to both; pass memory of their own");
  }
  RETURN_IF_ERROR(CheckCacheView("gather", "k", *spec.k_format, spec.head_dim,
                                 num_pages, spec.page_size, args.num_kv_heads,
                                 args.k));
  return CheckCacheView("gather", "v", *spec.v_format, spec.v_head_dim,
                        num_pages, spec.page_size, args.num_kv_heads, args.v);
}

}  // namespace

absl::Status RunGather(const PreparedKernel& kernel, GatherArgs args,
                       void* stream) {
  const KernelSpec& spec = kernel.spec();
  if (spec.kernel != KernelKind::kGather) {
    return absl::InvalidArgumentError(
        absl::StrCat("gather: the kernel is ", spec.Text(),
                     "; only gather kernels gather; prepare a gather spec"));
  }
  RETURN_IF_ERROR(CheckCount("gather", "num_rows", args.num_rows));
  RETURN_IF_ERROR(CheckCount("gather", "num_kv_heads", args.num_kv_heads));
  RETURN_IF_ERROR(CheckCount("gather", "num_slots", args.num_slots));
  const int64_t rows = int64_t{args.num_rows} * args.num_kv_heads;
  if (rows == 0) return absl::OkStatus();
  // The first half of the grid serves K, the second V.
  const int64_t block_rows = kernel.tile().block_m;
  const int64_t blocks = 2 * ((rows + block_rows - 1) / block_rows);
  RETURN_IF_ERROR(CheckGrid("gather", blocks));
  RETURN_IF_ERROR(CheckGather(spec, args));
  return kernel.Launch(blocks, &args, sizeof(args), stream);
}

}  // namespace kvforge
