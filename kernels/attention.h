// What decode and extend share: the arguments of attention over a paged cache
// and their checks.
#ifndef KVFORGE_KERNELS_ATTENTION_H_
#define KVFORGE_KERNELS_ATTENTION_H_

#include "absl/status/status.h"
#include "compiler/spec/kernel_spec.h"
#include "templates/kernels/attention_args.h"

namespace kvforge {

// Checks everything that the host can see of `args` against `spec` and fills in
// the access widths of args.k and args.v. Does not read device memory: lengths
// and page numbers in it are the caller's promise. `needs_out`: out and lse are
// written by this kernel itself.
absl::Status CheckAttention(const KernelSpec& spec, int num_q_heads,
                            bool needs_out, AttentionArgs& args);

// Counts only: negative ones and head counts that do not divide or do not match
// the spec's group.
absl::Status CheckAttentionCounts(const KernelSpec& spec, int num_q_heads,
                                  const AttentionArgs& args);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_ATTENTION_H_
