// Arguments of the gather kernel. Strides are bytes.
#ifndef KVFORGE_TEMPLATES_KERNELS_GATHER_ARGS_H_
#define KVFORGE_TEMPLATES_KERNELS_GATHER_ARGS_H_

#include "kernels/cache_view.h"

namespace kvforge {

// Row (i, head) starts at base + i * token_stride + head * head_stride, 16-byte
// aligned.
struct OutputRows {
  unsigned char* base;
  long long token_stride;
  long long head_stride;
};

struct GatherArgs {
  OutputRows k_out;
  OutputRows v_out;
  CacheView k;
  CacheView v;
  const long long* slots;  // [num_rows]; page * page_size + offset
  long long num_slots;     // slots the cache has
  int num_rows;            // slots to read
  int num_kv_heads;
};

}  // namespace kvforge

#endif  // KVFORGE_TEMPLATES_KERNELS_GATHER_ARGS_H_
