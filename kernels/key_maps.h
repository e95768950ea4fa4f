// Tensor maps of a paged cache's codes and row scales, which decode's tensor
// copies read in boxes of 16 slots of one page.
#ifndef KVFORGE_KERNELS_KEY_MAPS_H_
#define KVFORGE_KERNELS_KEY_MAPS_H_

#include "kernels/engine.h"
#include "templates/kernels/attention_args.h"

namespace kvforge {

// Fills args.boxes and the map of whatever tensor copies can read: base and
// strides are positive multiples of 16 bytes below 2^40; scales of neighbouring
// slots or heads are adjacent. The rest is copied row by row. Nothing to do
// where the kernel has no tensor copies. args.heads_per_block_log2 is read.
absl::Status FillKeyMaps(const PreparedKernel& decode, DecodeArgs& args);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_KEY_MAPS_H_
