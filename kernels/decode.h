// Attends 1 to spec.q_max new query tokens per sequence to that sequence's
// cached tokens, split over the KV length:
//   out[t,h] = softmax_j(scale * q[t,h] . K[j,h/g]) . V[j,h/g]
// Shapes, masks and what is promised about empty rows and bytes beyond kv_len
// are those of extend.h; a sequence may have fewer than q_max tokens, or none.
//
// With more than one split, split s of a row writes its f32 partial result and
// log-sum-exp to the workspace and a merge kernel combines them, both on
// `stream`. The number of splits is an argument, chosen from sizes that the
// host knows, so a captured graph replays with other lengths. Padding rows past
// q_indptr[batch] stay as they are with 1 split and are scratch with more.
//
//   workspace  DecodeWorkspaceBytes bytes, 16-byte aligned; contents are
//   scratch
//              of one call at a time. May be null with 1 split
//
// Errors  kInvalidArgument  as extend.h; also a workspace that is too small,
//                           splits out of range or a null merge kernel
// Source  split KV and merge of partial results: arXiv:1805.02867, section 3.1
#ifndef KVFORGE_KERNELS_DECODE_H_
#define KVFORGE_KERNELS_DECODE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/engine.h"
#include "templates/kernels/attention_args.h"

namespace kvforge {

inline constexpr int kMaxSplits = 1024;

// A decode kernel and the merge that finishes its splits.
struct DecodeKernels {
  std::shared_ptr<const PreparedKernel> decode;
  std::shared_ptr<const PreparedKernel> merge;
};

// The spec of the merge that a decode spec needs: merge/dDv/OUT.
KernelSpec MergeSpecOf(const KernelSpec& decode);

// Errors as Engine::Prepare.
absl::StatusOr<DecodeKernels> PrepareDecode(Engine& engine,
                                            const KernelSpec& spec);

struct DecodeSizes {
  int batch = 0;
  int num_kv_heads = 0;
  int64_t max_kv_len = 0;    // longest sequence of the batch, tokens
  int64_t total_kv_len = 0;  // over the batch; 0 = batch * max_kv_len
  // Of a sparse spec: only so many blocks of each sequence are work to cut.
  int selected_per_head = 0;
};

// How many parts to cut each sequence into so that the GPU is filled: one, if
// batch and heads fill it already. A batch whose sequences differ in length is
// cut finer if total_kv_len is given.
int ChooseSplits(const Engine& engine, const PreparedKernel& decode,
                 const DecodeSizes& sizes);

// Bytes of workspace for `total_q` rows of `num_q_heads` heads; 0 for 1 split,
// the largest int64_t where they pass it.
int64_t DecodeWorkspaceBytes(const KernelSpec& spec, int64_t total_q,
                             int num_q_heads, int splits);

struct DecodeParams {
  AttentionArgs args = {};  // access widths, splits, partial_*: filled in
  int num_q_heads = 0;      // args.num_kv_heads * the spec's group
  int splits = 1;           // from ChooseSplits, or the caller's
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

absl::Status RunDecode(const DecodeKernels& kernels, const DecodeParams& params,
                       void* stream);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_DECODE_H_
