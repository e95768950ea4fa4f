// What comes between ScoreMap and the mask: ALiBi, the user's score function,
// or nothing. Both take facts of the query row that the score is of.
#ifndef KVFORGE_TEMPLATES_OPS_SCORE_BIAS_CUH_
#define KVFORGE_TEMPLATES_OPS_SCORE_BIAS_CUH_

#include "ops/alibi.cuh"

namespace kvforge::ops {

inline constexpr bool kScoreBias = spec::kAlibi || spec::kScoreFunction;

// Where a query row's token stands, and its q head.
struct FunctionRow {
  int position;
  int head;

  __device__ __forceinline__ float Apply(float score, int key) const {
    return spec::UserScore(score, position, key, head);
  }
};

template <bool kFunction>
struct ScoreBiasOf {
  using Row = AlibiRow;
  static __device__ __forceinline__ Row Of(const AttentionArgs& args,
                                           const Sequence& sequence, int row) {
    return AlibiOf<spec::kGroup>(args, sequence, row);
  }
};
template <>
struct ScoreBiasOf<true> {
  using Row = FunctionRow;
  static __device__ __forceinline__ Row Of(const AttentionArgs&,
                                           const Sequence& sequence, int row) {
    return {sequence.kv_len - sequence.q_len + row / spec::kGroup,
            HeadOf<spec::kGroup>(sequence, row)};
  }
};
using ScoreBias = ScoreBiasOf<spec::kScoreFunction>;

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_SCORE_BIAS_CUH_
