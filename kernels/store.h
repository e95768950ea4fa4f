// Quantizes rows of K and V and scatters them into a paged cache:
//   cache[slots[t] / page_size, slots[t] % page_size, h] = quantize(src[t, h])
// for K and V alike, each in its own format, in one launch. Quantization of a
// row depends on nothing but that row; docs/formats.md defines it.
//
//   k_src, v_src  spec.type [num_tokens, num_kv_heads, head_dim]; token and
//                 head strides of any multiple of the access width (2 bytes,
//                 4 for f32), K's and V's separate
//   slots         i64 [num_tokens]; a negative slot, or one that is num_slots
//                 or more, is skipped: nothing is written for it; no slot twice
//   k, v          views of the cache, strides in bytes; see cache_geometry.h
//
// All pointers are memory of the engine's target. Queues work on `stream` and
// returns without waiting. Access widths are taken from bases and strides;
// what the caller wrote into those fields is ignored. Safe from several
// threads. The kernel comes from Engine::Prepare of a store spec.
//
// Errors  kInvalidArgument  a pointer, alignment, count or stride rule above is
//                           broken; nothing was launched
// Oracle  kernels/reference.h
#ifndef KVFORGE_KERNELS_STORE_H_
#define KVFORGE_KERNELS_STORE_H_

#include "absl/status/status.h"
#include "kernels/engine.h"
#include "templates/kernels/store_args.h"

namespace kvforge {

absl::Status RunStore(const PreparedKernel& kernel, StoreArgs args,
                      void* stream);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_STORE_H_
