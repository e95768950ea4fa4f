// What a tensor copy reads: boxes of a strided array of bytes in global memory.
// Plain type, shared by device templates and host code.
#ifndef KVFORGE_TEMPLATES_KERNELS_TENSOR_MAP_H_
#define KVFORGE_TEMPLATES_KERNELS_TENSOR_MAP_H_

namespace kvforge {

// Opaque: the driver's CUtensorMap on a GPU, HostTensorMap on the host target.
// Of five dimensions, the innermost first.
struct alignas(64) TensorMap {
  unsigned long long words[16];
};

}  // namespace kvforge

#endif  // KVFORGE_TEMPLATES_KERNELS_TENSOR_MAP_H_
