// Scalar double-precision oracles of the attention and merge kernels. Simple on
// purpose: no tiles, no online softmax, no narrow types. The oracle of the
// store kernel is compiler/formats/row_codec.h.
//
// One sequence with m query tokens over n keys, q head h, kv head h / group,
// query position i = n - m + t:
//
//   s[j]  = sm_scale * sum_d q[t,h,d] * k[j,h/group,d]
//   s[j]  = softcap * tanh(s[j] / softcap)             if softcap > 0
//   s[j] += alibi_slopes[h] * (j - i)                  if given
//   s[j]  = score_function(s[j], i, j, h)              if given
//   p[j]  = exp(s[j]) over the visible keys, 0 elsewhere
//   lse   = ln(sum_j p[j] + exp(sinks[h]))             sink term if given
//   out   = sum_j p[j] * v[j] / exp(lse)
//
// Key j is visible if all of these hold:
//   causal       j <= i; a custom mask replaces it by bit t * n + j, low bit of
//                a byte first
//   window       j > i - window                        if window > 0
//   selected     j / sparse_block is in the list of the kv head; -1 is nothing
//
// Without a visible key out is 0 and lse is -inf, or the sink if there is one.
// Bytes of hidden keys do not reach the result, NaN included.
#ifndef KVFORGE_KERNELS_REFERENCE_H_
#define KVFORGE_KERNELS_REFERENCE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace kvforge {

struct ReferenceParams {
  int num_q_heads = 0;
  int num_kv_heads = 0;  // divides num_q_heads
  int head_dim = 0;      // of q and K
  int v_head_dim = 0;
  double sm_scale = 1;
  bool causal = true;
  int window = 0;                        // 0 = none
  double softcap = 0;                    // 0 = none
  int sparse_block = 0;                  // tokens; 0 = no selection
  absl::Span<const float> sinks;         // [num_q_heads] or empty
  absl::Span<const float> alibi_slopes;  // [num_q_heads] or empty
  // What a user's score function computes; may be null.
  std::function<double(double score, int q_position, int kv_position,
                       int q_head)>
      score_function;
};

// The decoded rows of one sequence; row major.
struct ReferenceSequence {
  int q_len = 0;
  int kv_len = 0;
  absl::Span<const double> q;             // [q_len, num_q_heads, head_dim]
  absl::Span<const double> k;             // [kv_len, num_kv_heads, head_dim]
  absl::Span<const double> v;             // [kv_len, num_kv_heads, v_head_dim]
  absl::Span<const uint8_t> custom_mask;  // ceil(q_len * kv_len / 8) or empty
  absl::Span<const int32_t> selected;     // [num_kv_heads, any number]
};

struct ReferenceResult {
  std::vector<double> out;  // [q_len, num_q_heads, v_head_dim]
  std::vector<double> lse;  // [q_len, num_q_heads], natural log
};

// kInvalidArgument if a span's size does not follow from the shapes.
absl::StatusOr<ReferenceResult> ReferenceAttention(
    const ReferenceParams& params, const ReferenceSequence& sequence);

// Combines `splits` partial results over disjoint keys of the same rows:
//   lse = ln(sum_s exp(lse_s))      out = sum_s exp(lse_s - lse) * out_s
// partial_out [splits, rows, v_head_dim], partial_lse [splits, rows]. A part
// with lse -inf has no keys and its out is not read.
absl::StatusOr<ReferenceResult> ReferenceMerge(
    int splits, int rows, int v_head_dim, absl::Span<const double> partial_out,
    absl::Span<const double> partial_lse);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_REFERENCE_H_
