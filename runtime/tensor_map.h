// Tensor maps: what the copy engine of sm_90 up reads boxes of.
#ifndef KVFORGE_RUNTIME_TENSOR_MAP_H_
#define KVFORGE_RUNTIME_TENSOR_MAP_H_

#include "runtime/cuda/driver_api.h"
#include "templates/kernels/tensor_map.h"

namespace kvforge {

// A strided array of bytes in global memory, the innermost dimension first and
// dense, and the box of it that one copy takes. A box lies densely in shared
// memory, with a swizzle of 128 or 64 bytes or none (0).
struct TensorBox {
  const void* base = nullptr;          // 16-byte aligned
  unsigned long long strides[4] = {};  // of dimensions 1 to 4: multiples of
                                       // 16 bytes below 2^40
  unsigned sizes[5] = {};
  unsigned box[5] = {};  // up to 256 each
  int swizzle_bytes = 0;
};

// What the driver makes of a box, for a GPU of compute capability 9.0 or more.
// kInvalidArgument where it refuses the box.
absl::Status EncodeTensorMap(const DriverApi& api, const TensorBox& box,
                             TensorMap& map);

// For the host target.
void EncodeHostTensorMap(const TensorBox& box, TensorMap& map);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_TENSOR_MAP_H_
