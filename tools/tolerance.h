// The error bounds of attention against float64 attention over the decoded
// cache, per (query row, head):
//   |o - out|    <= r * max|out row| + half an ulp of the output type
//   |lse - lse'| <= 1e-3 + 1e-5 * |lse|
// r = 1e-3 with f16 operands, 4e-3 with bf16 operands (a bf16 cache); with
// compute=fp8 1.2e-1, and |lse - lse'| <= 5e-2 + 2e-2 * |lse|.
#ifndef KVFORGE_TOOLS_TOLERANCE_H_
#define KVFORGE_TOOLS_TOLERANCE_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "tools/attention_case.h"

namespace kvforge {

// Half the distance between neighbours of `value` in `type`.
double HalfUlp(DType type, double value);

struct ErrorReport {
  // Largest error divided by its bound; above 1 is a mismatch. Infinite where
  // only one of result and answer is NaN, or the result not exactly -inf or 0
  // where it has to be.
  double out_ratio = 0;
  double lse_ratio = 0;
  std::string worst_out;  // "row 3 head 1 element 17: 0.25, expected 0.5"
  std::string worst_lse;

  bool ok() const { return out_ratio <= 1 && lse_ratio <= 1; }
};

// `out`: bytes of problem.out_type, dense; `lse` f32. Compares the rows below
// q_indptr[batch]; the others have to be poison still if `padding_kept`.
ErrorReport CompareAttention(const AttentionCase& problem,
                             absl::Span<const uint8_t> out,
                             absl::Span<const float> lse, bool padding_kept);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_TOLERANCE_H_
