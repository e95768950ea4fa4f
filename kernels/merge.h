// Combines partial attention states by their log-sum-exp:
//   lse[r,h] = log sum_s exp(partial_lse[s,r,h])
//   out[r,h] = sum_s exp(partial_lse[s,r,h] - lse[r,h]) * partial_out[s,r,h]
// A state of lse -inf has weight 0 whatever its out; a row with no other state
// gives 0 and -inf.
//
//   partial_out  f32 [splits, rows, heads, head_dim]   16-byte aligned
//   partial_lse  f32 [splits, rows, heads]             natural log
//   out          spec.out [rows, heads, head_dim]      strides in bytes
//   lse          f32 [rows, heads], or null            row stride in elements
//
// All pointers are memory of the engine's target; out and lse must not overlap
// the partial states. Queues work on `stream` and returns without waiting; safe
// from several threads.
//
// Errors  kInvalidArgument  a pointer, alignment, count or stride rule above is
//                           broken; nothing was launched
// Source  arXiv:1805.02867, section 3.1. Oracle: kernels/reference.h
#ifndef KVFORGE_KERNELS_MERGE_H_
#define KVFORGE_KERNELS_MERGE_H_

#include "absl/status/status.h"
#include "kernels/engine.h"
#include "templates/kernels/merge_args.h"

namespace kvforge {

absl::Status RunMerge(const PreparedKernel& kernel, const MergeArgs& args,
                      void* stream);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_MERGE_H_
