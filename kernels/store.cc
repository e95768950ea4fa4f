#include "kernels/store.h"

#include "absl/strings/str_cat.h"
#include "kernels/argument_checks.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

// Planes that begin at one address would overwrite each other.
absl::Status CheckPlanesApart(const KernelSpec& spec, const CacheView& k,
                              const CacheView& v) {
  struct Named {
    const char* name;
    const unsigned char* base;  // null: no such plane
  };
  const auto row_scale = [](const KvFormat& format, const StridedBytes& plane) {
    return format.RowScaleBytes() > 0 ? plane.base : nullptr;
  };
  const auto block_scale = [](const KvFormat& format,
                              const StridedBytes& plane) {
    return format.block > 0 ? plane.base : nullptr;
  };
  const Named planes[] = {
      {"k.codes", k.codes.base},
      {"v.codes", v.codes.base},
      {"k.row_scale", row_scale(*spec.k_format, k.row_scale)},
      {"v.row_scale", row_scale(*spec.v_format, v.row_scale)},
      {"k.block_scale", block_scale(*spec.k_format, k.block_scale)},
      {"v.block_scale", block_scale(*spec.v_format, v.block_scale)}};
  for (const Named& a : planes) {
    for (const Named& b : planes) {
      if (&a >= &b || a.base == nullptr || a.base != b.base) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "store: ", a.name, ".base and ", b.name,
          ".base are the same address; codes and scales of K and V must have "
          "bytes of their own; pass the V half of an interleaved cache as "
          "V's, and scales behind their row's codes"));
    }
  }
  return absl::OkStatus();
}

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
  return CheckPlanesApart(spec, args.k, args.v);
}

}  // namespace

absl::Status RunStore(const PreparedKernel& kernel, StoreArgs args,
                      void* stream) {
  const KernelSpec& spec = kernel.spec();
  if (spec.kernel != KernelKind::kStore) {
    return absl::InvalidArgumentError(
        absl::StrCat("store: the kernel is ", spec.Text(),
                     "; only store kernels store; prepare a store spec"));
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
