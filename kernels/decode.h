// Attends 1 to spec.q_max new query tokens per sequence to that sequence's
// cached tokens:
//   out[t,h] = softmax_j(scale * q[t,h] . K[j,h/g]) . V[j,h/g]
// Shapes, masks and what is promised about empty rows and bytes beyond kv_len
// are those of extend.h; a sequence may have fewer than q_max tokens, or none.
//
// One launch of a fixed number of blocks, which share the work evenly among
// themselves from the lengths in device memory: a captured graph replays with
// other lengths, and one long sequence among short ones is spread over the GPU.
// Where a (sequence, kv heads) is cut, the parts go to the workspace and the
// last block to finish one merges them; no block waits for another. Rows past
// q_indptr[batch] stay as they are.
//
//   workspace  DecodeWorkspaceBytes bytes, 16-byte aligned, of one call at a
//              time. Its first 4 * grid.blocks bytes are counters: zero before
//              the first call, and zero again after each; the rest may hold
//              anything. May be null with one block
//
// Errors  kInvalidArgument  as extend.h; also a grid that does not fit the
//                           kernel or the heads, or a workspace too small
// Source  split KV and merge of partial results: arXiv:1805.02867, section 3.1;
//         an even share of a line of work for each block: arXiv:2301.03598
#ifndef KVFORGE_KERNELS_DECODE_H_
#define KVFORGE_KERNELS_DECODE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/engine.h"
#include "templates/kernels/attention_args.h"

namespace kvforge {

inline constexpr int kMaxDecodeBlocks = 1 << 16;

// How a launch is laid over the GPU.
struct DecodeGrid {
  int blocks = 1;
  // Neighbouring kv heads that a block attends to at a time: a power of two
  // that divides both num_kv_heads and the kernel's warps. Many read longer
  // runs of a cache whose heads lie side by side; few cut a small batch finer.
  int heads_per_block = 1;
};

struct DecodeSizes {
  int batch = 0;
  int num_kv_heads = 0;
  // Query tokens and cached tokens of a sequence, about: with them a grid that
  // was tuned with the kernel's tile is taken. 0 = not known.
  int q_len = 0;
  int kv_len = 0;
};

// The grid that fills the engine's GPU. Right for any sizes, fastest for those
// given.
DecodeGrid ChooseDecodeGrid(const Engine& engine, const PreparedKernel& decode,
                            const DecodeSizes& sizes);

// Bytes of workspace of launches with `grid`, whatever their batch and lengths;
// 0 for one block.
int64_t DecodeWorkspaceBytes(const PreparedKernel& decode,
                             const DecodeGrid& grid);

struct DecodeParams {
  AttentionArgs args = {};  // access widths: filled in
  int num_q_heads = 0;      // args.num_kv_heads * the spec's group
  DecodeGrid grid;          // from ChooseDecodeGrid, or the caller's
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

absl::Status RunDecode(const PreparedKernel& decode, const DecodeParams& params,
                       void* stream);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_DECODE_H_
