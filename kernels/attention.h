// What decode and extend share: the arguments of attention over a paged cache
// and their checks.
#ifndef KVFORGE_KERNELS_ATTENTION_H_
#define KVFORGE_KERNELS_ATTENTION_H_

#include "absl/status/status.h"
#include "compiler/spec/kernel_spec.h"
#include "kernels/known_views.h"
#include "templates/kernels/attention_args.h"

namespace kvforge {

// Checks everything that the host can see of `args` against `spec` and fills in
// the access widths of args.k and args.v, but for views that are known. Does
// not read device memory: lengths and page numbers in it are the caller's
// promise.
absl::Status CheckAttention(const KernelSpec& spec, int num_q_heads,
                            bool views_known, AttentionArgs& args);

// Fills in the access widths of args.k and args.v.
void SetAccessWidths(const ViewFacts& facts, AttentionArgs& args);

// Of views that were checked.
ViewFacts AccessWidths(const AttentionArgs& args);

// Counts only: negative ones and head counts that do not divide or do not match
// the spec's group.
absl::Status CheckAttentionCounts(const KernelSpec& spec, int num_q_heads,
                                  const AttentionArgs& args);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_ATTENTION_H_
