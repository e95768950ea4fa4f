// How one side (K or V) of a paged cache lies in memory. A launch argument:
// plain types only, shared by device templates and host code.
//
// Token `slot` of page `page`, kv head `h` has its codes at
//   codes + page * page_stride + slot * slot_stride + h * head_stride
// and its sidecars likewise with their own strides. All strides are bytes.
#ifndef KVFORGE_TEMPLATES_KERNELS_CACHE_VIEW_H_
#define KVFORGE_TEMPLATES_KERNELS_CACHE_VIEW_H_

namespace kvforge {

struct StridedBytes {
  unsigned char* base;
  long long page_stride;
  long long slot_stride;
  long long head_stride;
};

struct CacheView {
  StridedBytes codes;        // CodeBytes(head_dim) contiguous bytes a row
  StridedBytes row_scale;    // f32 a row, with its f32 minimum behind it where
                             // there is one; 4-byte aligned; null base if none
  StridedBytes block_scale;  // BlockScaleBytes(head_dim) contiguous bytes a row
  // Given scale in device memory, or null: then `scale`. Given per kv head: f32
  // [kv heads], per channel: f32 [kv heads, head_dim], not null.
  const float* scale_ptr;
  float scale;
  int code_bytes;         // width of one access to codes: 16, 8 or 4
  int block_scale_bytes;  // width of one access to block scales: 8, 4 or 1
};

}  // namespace kvforge

#endif  // KVFORGE_TEMPLATES_KERNELS_CACHE_VIEW_H_
