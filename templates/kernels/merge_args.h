// Arguments of the merge kernel. Strides are bytes unless said.
#ifndef KVFORGE_TEMPLATES_KERNELS_MERGE_ARGS_H_
#define KVFORGE_TEMPLATES_KERNELS_MERGE_ARGS_H_

namespace kvforge {

struct MergeArgs {
  const float* partial_out;  // [splits, rows, heads, head_dim]
  const float* partial_lse;  // [splits, rows, heads], natural log
  unsigned char* out;        // [rows, heads, head_dim] of the spec's type
  long long out_row_stride;
  long long out_head_stride;
  float* lse;                // [rows, heads]; may be null
  long long lse_row_stride;  // elements; heads are adjacent
  int splits;
  int rows;
  int heads;
};

}  // namespace kvforge

#endif  // KVFORGE_TEMPLATES_KERNELS_MERGE_ARGS_H_
