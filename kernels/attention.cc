#include "kernels/attention.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/argument_checks.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

// Kernels number the rows of a kv head in 32 bits, and the last tile's rows
// reach past the last one.
constexpr int64_t kMaxGroupRows = int64_t{1} << 30;

// ALiBi slopes, custom mask and selected blocks, where the spec has them.
absl::Status CheckVisibility(const KernelSpec& spec,
                             const AttentionArgs& args) {
  const absl::string_view kernel = KernelName(spec.kernel);
  if (spec.alibi) {
    RETURN_IF_ERROR(CheckPointer(kernel, "alibi_slopes", args.alibi_slopes, 4,
                                 "f32 slopes, one a q head"));
  }
  if (spec.mask == MaskKind::kCustom) {
    RETURN_IF_ERROR(CheckPointer(kernel, "custom_mask", args.custom_mask, 1,
                                 "mask bits, q_len * kv_len a sequence"));
    RETURN_IF_ERROR(CheckPointer(kernel, "mask_indptr", args.mask_indptr, 4,
                                 "i32 byte offsets of each sequence's mask"));
  }
  if (spec.sparse_block == 0) return absl::OkStatus();
  RETURN_IF_ERROR(
      CheckCount(kernel, "selected_per_head", args.selected_per_head));
  const int most = std::numeric_limits<int>::max() / spec.sparse_block;
  if (args.selected_per_head > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        kernel, ": selected_per_head = ", args.selected_per_head, " blocks of ",
        spec.sparse_block, " tokens; up to ", most,
        " blocks of this length are supported; pass shorter lists"));
  }
  if (args.selected_per_head == 0) return absl::OkStatus();
  return CheckPointer(kernel, "selected", args.selected, 4,
                      "i32 block numbers, selected_per_head a kv head");
}

}  // namespace

absl::Status CheckAttentionCounts(const KernelSpec& spec, int num_q_heads,
                                  const AttentionArgs& args) {
  const absl::string_view kernel = KernelName(spec.kernel);
  RETURN_IF_ERROR(CheckCount(kernel, "batch", args.batch));
  RETURN_IF_ERROR(CheckCount(kernel, "total_q", args.total_q));
  RETURN_IF_ERROR(CheckCount(kernel, "num_q_heads", num_q_heads));
  RETURN_IF_ERROR(CheckCount(kernel, "num_kv_heads", args.num_kv_heads));
  if (args.num_kv_heads == 0 || num_q_heads % args.num_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        kernel, ": num_q_heads = ", num_q_heads,
        " is not a multiple of num_kv_heads = ", args.num_kv_heads,
        "; every kv head must serve the same number of q heads; check the "
        "model's head counts"));
  }
  if (num_q_heads / args.num_kv_heads != spec.group) {
    return absl::InvalidArgumentError(absl::StrCat(
        kernel, ": num_q_heads / num_kv_heads = ",
        num_q_heads / args.num_kv_heads, " with a kernel of group ", spec.group,
        "; a kernel serves the group it was prepared for; prepare ", kernel,
        " with g", num_q_heads / args.num_kv_heads));
  }
  const int64_t rows = int64_t{args.total_q} * spec.group;
  if (rows > kMaxGroupRows) {
    return absl::InvalidArgumentError(absl::StrCat(
        kernel, ": total_q = ", args.total_q, " with a group of ", spec.group,
        " is ", rows, " rows of one kv head; up to ", kMaxGroupRows,
        " are supported; split the batch over several calls"));
  }
  return absl::OkStatus();
}

absl::Status CheckAttention(const KernelSpec& spec, int num_q_heads,
                            bool views_known, AttentionArgs& args) {
  const absl::string_view kernel = KernelName(spec.kernel);
  RETURN_IF_ERROR(CheckTokenRows(kernel, "q", args.q, args.q_token_stride,
                                 args.q_head_stride, args.total_q, num_q_heads,
                                 int64_t{spec.head_dim} * DTypeBytes(spec.type),
                                 kRowAlignment,
                                 /*written=*/false));
  RETURN_IF_ERROR(CheckPointer(kernel, "q_indptr", args.q_indptr, 4,
                               "i32 row offsets, batch + 1 of them"));
  RETURN_IF_ERROR(CheckPointer(kernel, "kv_lens", args.kv_lens, 4,
                               "i32 lengths, one a sequence"));
  RETURN_IF_ERROR(CheckPointer(kernel, "page_table", args.page_table, 4,
                               "i32 page numbers of each sequence"));
  constexpr int64_t kMostEntries = int64_t{1} << 44;  // 2^46 bytes
  if (args.page_table_stride < 0 || args.page_table_stride > kMostEntries) {
    return absl::InvalidArgumentError(absl::StrCat(
        kernel, ": page_table_stride = ", args.page_table_stride,
        " is out of range; 0 to ", kMostEntries,
        " elements are supported; pass the row length of page_table"));
  }
  if (!views_known) {
    RETURN_IF_ERROR(CheckCacheView(kernel, "k", *spec.k_format, spec.head_dim,
                                   kUnknownPages, spec.page_size,
                                   args.num_kv_heads, args.k));
    RETURN_IF_ERROR(CheckCacheView(kernel, "v", *spec.v_format, spec.v_head_dim,
                                   kUnknownPages, spec.page_size,
                                   args.num_kv_heads, args.v));
  }
  if (spec.sinks) {
    RETURN_IF_ERROR(CheckPointer(kernel, "sinks", args.sinks, 4,
                                 "f32 sink logits, one a q head"));
  }
  RETURN_IF_ERROR(CheckVisibility(spec, args));
  if (!std::isfinite(args.sm_scale)) {
    return absl::InvalidArgumentError(absl::StrCat(
        kernel, ": sm_scale = ", args.sm_scale,
        " is not finite; any finite scale is supported; pass 1/sqrt(head_dim) "
        "or the model's own"));
  }
  RETURN_IF_ERROR(CheckTokenRows(
      kernel, "out", args.out, args.out_token_stride, args.out_head_stride,
      args.total_q, num_q_heads,
      int64_t{spec.v_head_dim} * DTypeBytes(spec.out), kRowAlignment,
      /*written=*/true));
  return CheckLseRows(kernel, args.lse, args.lse_token_stride, args.total_q,
                      num_q_heads);
}

void SetAccessWidths(const ViewFacts& facts, AttentionArgs& args) {
  args.k.code_bytes = facts.k_code_bytes;
  args.k.block_scale_bytes = facts.k_block_scale_bytes;
  args.v.code_bytes = facts.v_code_bytes;
  args.v.block_scale_bytes = facts.v_block_scale_bytes;
}

ViewFacts AccessWidths(const AttentionArgs& args) {
  ViewFacts facts = {};
  facts.k_code_bytes = args.k.code_bytes;
  facts.k_block_scale_bytes = args.k.block_scale_bytes;
  facts.v_code_bytes = args.v.code_bytes;
  facts.v_block_scale_bytes = args.v.block_scale_bytes;
  return facts;
}

}  // namespace kvforge
