// The keys that a block of extend attends to, and their copies.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_WORK_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_WORK_CUH_

#include "kernels/extend/shape.cuh"
#include "ops/attention_row.cuh"
#include "ops/custom_mask.cuh"
#include "ops/visible_keys.cuh"

namespace kvforge::kernels {

struct ExtendWork {
  int first_query;  // tokens of the block's rows
  int last_query;
  ops::KeyRange range;   // keys that some row sees
  ops::KeyRange common;  // keys that every row sees
  int begin;             // the first tile's first key
  int tiles;

  __device__ __forceinline__ ExtendWork(const ops::Sequence& sequence,
                                        int row0) {
    const int rows = sequence.q_len * spec::kGroup;
    const int last_row =
        row0 + spec::kBlockM < rows ? row0 + spec::kBlockM - 1 : rows - 1;
    first_query = row0 / spec::kGroup;
    last_query = last_row / spec::kGroup;
    const ops::KeyRange first = ops::VisibleKeys<spec::kCausal, spec::kWindow>(
        sequence.kv_len, sequence.q_len, first_query);
    const ops::KeyRange last = ops::VisibleKeys<spec::kCausal, spec::kWindow>(
        sequence.kv_len, sequence.q_len, last_query);
    range = {first.first, last.end};
    common = {last.first, first.end};
    begin = range.first / ops::kGroupKeys * ops::kGroupKeys;
    tiles = range.end > begin
                ? (range.end - begin + spec::kBlockN - 1) / spec::kBlockN
                : 0;
  }
};

using ExtendPages = ops::GroupPages<spec::kPageSize, ExtendShape::kPicked>;

// Pages of the 16 keys from `key` on.
__device__ __forceinline__ ExtendPages FetchPages(const AttentionArgs& args,
                                                  const ops::Sequence& sequence,
                                                  const ExtendWork& work,
                                                  int key, int lane) {
  ExtendPages pages;
  if constexpr (spec::kCustomMask) {
    const ops::CustomMask mask = ops::MaskOf<true>(args, sequence);
    pages.picked = mask.Any16(work.first_query, work.last_query, key, lane);
  }
  pages.Fetch(sequence.table, key, work.range.first, work.range.end, lane);
  return pages;
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_WORK_CUH_
