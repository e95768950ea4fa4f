#include "kernels/store.h"

#include "absl/strings/str_cat.h"
#include "kernels/argument_checks.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

absl::Status CheckStore(const KernelSpec& spec, StoreArgs& args) {
  const int64_t num_pages =  // the last one may be cut short
      args.num_slots / spec.page_size + (args.num_slots % spec.page_size != 0);
  const int element_bytes = DTypeBytes(spec.type);
  RETURN_IF_ERROR(
      CheckPointer("store", "slots", args.slots, 8, "i64 slots, one a token"));
  RETURN_IF_ERROR(CheckSourceRows("store", "k_src", args.num_tokens,
                                  args.num_kv_heads, element_bytes,
                                  spec.head_dim, args.k_src));
  RETURN_IF_ERROR(CheckSourceRows("store", "v_src", args.num_tokens,
                                  args.num_kv_heads, element_bytes,
                                  spec.v_head_dim, args.v_src));
  RETURN_IF_ERROR(CheckCacheView("store", "k", *spec.k_format, spec.head_dim,
                                 num_pages, spec.page_size, args.num_kv_heads,
                                 args.k));
  RETURN_IF_ERROR(CheckCacheView("store", "v", *spec.v_format, spec.v_head_dim,
                                 num_pages, spec.page_size, args.num_kv_heads,
                                 args.v));
  if (args.k.codes.base == args.v.codes.base) {
    return absl::InvalidArgumentError(
        "store: k.codes.base and v.codes.base are the same address; K and V "
        "must have bytes of their own; pass the V half of an interleaved cache "
        "as v.codes.base");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunStore(const PreparedKernel& kernel, StoreArgs args,
                      void* stream) {
  const KernelSpec& spec = kernel.spec();
  if (spec.kernel != KernelKind::kStore) {
    return absl::InvalidArgumentError(
        absl::StrCat("store: the kernel is ", spec.Text(),
                     "; RunStore runs store kernels; prepare a store spec"));
  }
  RETURN_IF_ERROR(CheckCount("store", "num_tokens", args.num_tokens));
  RETURN_IF_ERROR(CheckCount("store", "num_kv_heads", args.num_kv_heads));
  RETURN_IF_ERROR(CheckCount("store", "num_slots", args.num_slots));
  const int64_t rows = int64_t{args.num_tokens} * args.num_kv_heads;
  if (rows == 0 || args.num_slots == 0) return absl::OkStatus();
  RETURN_IF_ERROR(CheckStore(spec, args));
  const int64_t block_rows = kernel.tile().block_m;
  const int64_t blocks = (rows + block_rows - 1) / block_rows;
  RETURN_IF_ERROR(CheckGrid("store", blocks));
  return kernel.Launch(blocks, &args, sizeof(args), stream);
}

}  // namespace kvforge
