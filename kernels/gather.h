// Reads rows of a paged cache back to dense memory, dequantized, for restoring,
// offloading and reusing prefixes:
//   k_out[i, h] = dequantize(k[slots[i] / page_size, slots[i] % page_size, h])
// and V alike, each from its own format, in one launch.
//
//   k_out, v_out  spec.type [num_rows, num_kv_heads, head_dim or v_head_dim];
//                 bases and strides are multiples of 16 bytes
//   slots         i64 [num_rows], in any order, repeated or not. A negative
//                 slot, or one that is num_slots or more, gives a row of zeros:
//                 padding of a batch or a captured graph must not leave NaN
//                 behind that a masked weight of 0 does not hide
//   k, v          views of the cache, strides in bytes; see cache_geometry.h
//
// A value is code * block scale * scale (+ minimum), rounded once to f32 and
// then to spec.type; codes and scales that are NaN give NaN. A 16-bit cache
// read as its own type is copied bit for bit.
//
// All pointers are memory of the engine's target; outputs must not overlap the
// cache. Queues work on `stream` and returns without waiting. Access widths are
// taken from bases and strides. Safe from several threads. The kernel comes
// from Engine::Prepare of a gather spec.
//
// Errors  kInvalidArgument  a pointer, alignment, count or stride rule above is
//                           broken; nothing was launched
// Oracle  compiler/formats/row_codec.h
#ifndef KVFORGE_KERNELS_GATHER_H_
#define KVFORGE_KERNELS_GATHER_H_

#include "absl/status/status.h"
#include "kernels/engine.h"
#include "templates/kernels/gather_args.h"

namespace kvforge {

absl::Status RunGather(const PreparedKernel& kernel, GatherArgs args,
                       void* stream);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_GATHER_H_
