// Where a query row's values are read and written. A block's rows are the
// (token, q head) pairs of one sequence and one kv head, heads of the group
// first: row r is token r / kGroup and head kv_head * kGroup + r % kGroup.
#ifndef KVFORGE_TEMPLATES_OPS_ATTENTION_ROW_CUH_
#define KVFORGE_TEMPLATES_OPS_ATTENTION_ROW_CUH_

#include "kernels/attention_args.h"
#include "ops/softmax.cuh"
#include "ops/visible_keys.cuh"

namespace kvforge::ops {

// One sequence as one kv head sees it.
struct Sequence {
  int batch;
  int kv_head;
  int q_start;  // first row of q
  int q_len;
  int kv_len;
  const int* table;  // its pages

  __device__ __forceinline__ Sequence(const AttentionArgs& args, int b, int h)
      : batch(b),
        kv_head(h),
        q_start(arch::LoadGlobal<int>(args.q_indptr + b)),
        q_len(arch::LoadGlobal<int>(args.q_indptr + b + 1) - q_start),
        kv_len(arch::LoadGlobal<int>(args.kv_lens + b)),
        table(args.page_table + b * args.page_table_stride) {
    if (kv_len < 0) kv_len = 0;
  }
  // The same, its lengths known.
  __device__ __forceinline__ Sequence(const AttentionArgs& args, int b, int h,
                                      int start, int q, int kv)
      : batch(b),
        kv_head(h),
        q_start(start),
        q_len(q),
        kv_len(kv),
        table(args.page_table + b * args.page_table_stride) {}
};

template <int kGroup>
__device__ __forceinline__ i64 TokenOf(const Sequence& sequence, int row) {
  return sequence.q_start + row / kGroup;
}

template <int kGroup>
__device__ __forceinline__ int HeadOf(const Sequence& sequence, int row) {
  return sequence.kv_head * kGroup + row % kGroup;
}

// The row's first byte of q, past the sequence's last row that of the last:
// what follows from it goes nowhere.
template <int kGroup>
__device__ __forceinline__ const u8* QueryOf(const AttentionArgs& args,
                                             const Sequence& sequence,
                                             int row) {
  const int last = sequence.q_len * kGroup - 1;
  if (row > last) row = last;
  return args.q + TokenOf<kGroup>(sequence, row) * args.q_token_stride +
         HeadOf<kGroup>(sequence, row) * args.q_head_stride;
}

// The row's sink logit in base 2, or -inf.
template <int kGroup, bool kSinks>
__device__ __forceinline__ float SinkOf(const AttentionArgs& args,
                                        const Sequence& sequence, int row) {
  if constexpr (kSinks) {
    return arch::LoadGlobal<float>(args.sinks + HeadOf<kGroup>(sequence, row)) *
           kLog2E;
  }
  return NegativeInfinity();
}

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_ATTENTION_ROW_CUH_
