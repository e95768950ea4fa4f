// Tensor maps of a paged cache's codes and scales, which decode's tensor
// copies read in boxes of 16 slots of one page.
#ifndef KVFORGE_KERNELS_KEY_MAPS_H_
#define KVFORGE_KERNELS_KEY_MAPS_H_

#include "kernels/engine.h"
#include "templates/kernels/attention_args.h"

namespace kvforge {

// Fills in facts.boxes and the map of whatever tensor copies can read: base and
// strides are positive multiples of 16 bytes below 2^40; scales of neighbouring
// slots or heads are adjacent. The rest is copied row by row. Nothing to do
// where the kernel has no tensor copies. Of `args` the views, num_kv_heads and
// heads_per_block_log2 are read.
absl::Status MakeKeyMaps(const PreparedKernel& decode, const DecodeArgs& args,
                         ViewFacts& facts);

// Fills in args.boxes and those maps.
void SetKeyMaps(const ViewFacts& facts, DecodeArgs& args);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_KEY_MAPS_H_
