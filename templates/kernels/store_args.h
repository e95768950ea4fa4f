// Arguments of the store kernel. Strides are bytes.
#ifndef KVFORGE_TEMPLATES_KERNELS_STORE_ARGS_H_
#define KVFORGE_TEMPLATES_KERNELS_STORE_ARGS_H_

#include "kernels/cache_view.h"

namespace kvforge {

// Row (token, head) starts at base + token * token_stride + head * head_stride.
struct SourceRows {
  const unsigned char* base;
  long long token_stride;
  long long head_stride;
  int access_bytes;  // width of one access: 16, 8, 4 or 2 (4 at least for f32)
};

struct StoreArgs {
  SourceRows k_src;
  SourceRows v_src;
  CacheView k;
  CacheView v;
  const long long* slots;  // [num_tokens]; page * page_size + offset; < 0 skips
  long long num_slots;     // slots the cache has; a slot >= this one is skipped
  int num_tokens;
  int num_kv_heads;
};

}  // namespace kvforge

#endif  // KVFORGE_TEMPLATES_KERNELS_STORE_ARGS_H_
