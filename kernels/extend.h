// Attends the query tokens of a ragged batch to their sequences' cached tokens,
// for prefill and chunked prefill over a cached prefix:
//   out[t,h] = softmax_j(scale * q[t,h] . K[j,h/g]) . V[j,h/g]
// where j runs over the visible keys below kv_lens[b], b the sequence of row t.
// The new tokens' own K and V must be in the cache already. Causal masks are
// aligned at the end: row i of m sees keys up to kv_len - m + i.
//
//   q           spec.type [total_q, q heads, head_dim]     16-byte aligned
//   out         spec.out  [total_q, q heads, v_head_dim]   16-byte aligned
//   lse         f32 [total_q, q heads], natural log, or null
//   q_indptr    i32 [batch + 1], ascending from 0; rows past q_indptr[batch]
//               are padding and stay as they are
//   kv_lens     i32 [batch], 0 to 2^31 - 17
//   page_table  i32 [batch, ceil(kv_len / page_size) or more]
//   sinks       f32 [q heads] if the spec has sinks
//   alibi_slopes  f32 [q heads] if the spec has alibi: slopes[h] * (j - i) is
//                 added to the score of key j for the query at position i,
//                 behind the soft cap
//   custom_mask   bits, if mask=custom: bit t * kv_len + j of sequence b, low
//                 bit of a byte first, from byte mask_indptr[b] on, says
//                 whether its query t sees key j; replaces the causal rule, and
//                 a window and a selection narrow it. Not a byte is read past
//                 ceil(q_len * kv_len / 8)
//   mask_indptr   i32 [batch] byte offsets, if mask=custom
//   selected      i32 [batch, kv heads, selected_per_head], if sparse=B: blocks
//                 of B tokens, in any order without duplicates, -1 anywhere;
//                 only their keys are visible, and no other key is read: pages
//                 that hold none of them may be freed
//
// A row with no visible key gives out 0 and lse -inf (with a sink: the sink).
// Bytes of the cache at and beyond kv_len may be anything, and so may those of
// keys that a custom mask hides from every query. NaN in q, in a visible K or
// in a visible V makes its row NaN, lse included but for V; NaN or infinity in
// a V row may reach rows of the same sequence that do not see it. All pointers
// are memory of the engine's target and must not overlap `out`. total_q * group
// is at most 2^30. Queues work on `stream` and returns without waiting; safe
// from several threads. Access widths, and decode's own fields of `args` are
// this call's to fill in.
//
// A kernel in a tile of images (Tile::images) decodes the visible keys once
// into a workspace of 16-bit operands and attends to those: faster where many
// query tokens share them, for more memory. Others take no workspace. Where the
// workspace holds fewer than kv_tokens of them, it takes as many passes as they
// need, two launches each.
//
//   workspace   ExtendWorkspaceBytes bytes, 128-byte aligned, of one call at a
//               time; may hold anything. Where sequences have more keys than
//               kv_tokens, the rows that miss some become NaN
//
// Errors  kInvalidArgument  a pointer, alignment, count or stride rule above is
//                           broken; nothing was launched
// Source  online softmax: arXiv:1805.02867, section 3. Oracle:
//         kernels/reference.h
#ifndef KVFORGE_KERNELS_EXTEND_H_
#define KVFORGE_KERNELS_EXTEND_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/engine.h"
#include "templates/kernels/attention_args.h"

namespace kvforge {

struct ExtendSizes {
  int batch = 0;
  int num_kv_heads = 0;
  int64_t kv_tokens = 0;  // at most, of all sequences together
  // How many of these the workspace holds at a time; 0: all of them. Then its
  // bytes are those of total_q and of these, whatever kv_tokens.
  int64_t kv_tokens_per_pass = 0;
  int total_q = 0;  // at most; with several passes
};

// Bytes of workspace of launches of such sizes; 0 for a kernel that takes none.
int64_t ExtendWorkspaceBytes(const PreparedKernel& extend,
                             const ExtendSizes& sizes);

// The tile in which extend of `spec` attends to images in a workspace, for
// Engine::Prepare. kResourceExhausted where there is none, with the reason:
// Engine::Prepare(spec) serves then.
absl::StatusOr<Tile> ImagesTile(const Engine& engine, const KernelSpec& spec);

// How extend of such sizes runs best with a workspace of up to granted_bytes.
struct ExtendPlan {
  std::optional<Tile> images;   // none: Engine::Prepare(spec), no workspace
  int64_t workspace_bytes = 0;  // at most what is granted
};

// On images where the GPU has them for `spec`, where the batch has at least 512
// rows (tokens times the group) a sequence, so that several blocks read each
// image, and where granted_bytes hold the images at once or in up to 16 passes.
// Lengths of a launch may then be anything within `sizes`; kv_tokens_per_pass
// is not read.
ExtendPlan ChooseExtend(const Engine& engine, const KernelSpec& spec,
                        const ExtendSizes& sizes, int64_t granted_bytes);

struct ExtendParams {
  AttentionArgs args = {};
  int num_q_heads = 0;  // args.num_kv_heads * the spec's group
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
  // At most, of all sequences together; 0: what the workspace holds at once.
  int64_t kv_tokens = 0;
};

absl::Status RunExtend(const PreparedKernel& kernel, const ExtendParams& params,
                       void* stream);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_EXTEND_H_
