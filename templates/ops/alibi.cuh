// ALiBi: slope[h] * (key - position), added to a score in natural units behind
// the soft cap and in front of the mask.
#ifndef KVFORGE_TEMPLATES_OPS_ALIBI_CUH_
#define KVFORGE_TEMPLATES_OPS_ALIBI_CUH_

#include "ops/attention_row.cuh"

namespace kvforge::ops {

// The slope of a query row, and where its token stands.
struct AlibiRow {
  float slope;
  int position;

  __device__ __forceinline__ float Apply(float score, int key) const {
    return arch::Fma(slope, static_cast<float>(key - position), score);
  }
};

// Rows past the sequence's last have a slope too: no key is read for it.
template <int kGroup>
__device__ __forceinline__ AlibiRow AlibiOf(const AttentionArgs& args,
                                            const Sequence& sequence, int row) {
  return {arch::LoadGlobal<float>(args.alibi_slopes +
                                  HeadOf<kGroup>(sequence, row)),
          sequence.kv_len - sequence.q_len + row / kGroup};
}

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_ALIBI_CUH_
