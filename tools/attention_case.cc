#include "tools/attention_case.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/decode.h"
#include "runtime/base/status_macros.h"

namespace kvforge {

int64_t AttentionCase::total_q() const {
  return num_q_heads == 0 ? 0 : static_cast<int64_t>(lse.size()) / num_q_heads;
}

int AttentionCase::max_q_len() const {
  int longest = 0;
  for (int b = 0; b < batch(); ++b) {
    longest = std::max(longest, q_indptr[b + 1] - q_indptr[b]);
  }
  return longest;
}

int64_t AttentionCase::max_kv_len() const {
  return kv_lens.empty() ? 0
                         : *std::max_element(kv_lens.begin(), kv_lens.end());
}

bool FitsDecode(const AttentionCase& problem) {
  if (problem.compute != Compute::k16Bit) return false;
  return problem.max_q_len() <= kMaxDecodeTokens;
}

absl::StatusOr<KernelSpec> CaseSpec(const AttentionCase& problem,
                                    KernelKind kernel, SlotOrder order) {
  KernelSpec spec;
  spec.kernel = kernel;
  spec.k_format = problem.k.format;
  spec.v_format = problem.v.format;
  spec.head_dim = problem.k.head_dim;
  spec.v_head_dim = problem.v.head_dim;
  spec.page_size = problem.page_size;
  spec.order = order;
  if (kernel == KernelKind::kStore) {
    spec.type = spec.out = problem.source_type;
    RETURN_IF_ERROR(ValidateSpec(spec));
    return spec;
  }
  spec.type = problem.query_type;
  spec.out = problem.out_type;
  spec.group = problem.num_q_heads / problem.num_kv_heads;
  if (problem.has_custom_mask()) {
    spec.mask = MaskKind::kCustom;
  } else if (!problem.causal) {
    spec.mask = MaskKind::kFull;
  }
  spec.window = problem.window;
  spec.softcap = problem.softcap;
  spec.score = problem.score;
  spec.sinks = !problem.sinks.empty();
  spec.alibi = !problem.alibi_slopes.empty();
  spec.sparse_block = problem.sparse_block;
  if (kernel == KernelKind::kExtend) spec.compute = problem.compute;
  if (kernel == KernelKind::kDecode) {
    spec.q_max = std::max(1, problem.max_q_len());
  }
  RETURN_IF_ERROR(ValidateSpec(spec));
  return spec;
}

}  // namespace kvforge
