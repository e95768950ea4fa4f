// NVRTC's options for every kernel: part of the cache key, so a process without
// NVRTC computes the same key. The arch is a part of its own.
#ifndef KVFORGE_RUNTIME_CUDA_COMPILE_OPTIONS_H_
#define KVFORGE_RUNTIME_CUDA_COMPILE_OPTIONS_H_

#include <string>
#include <vector>

namespace kvforge {

// --fmad=false: a fused operation is one that the text asks for.
// --diag-suppress=177: warnings are errors, but the text names constants that
// not every kernel uses.
inline std::vector<std::string> CudaCompileOptions() {
  return {"--std=c++17", "--fmad=false", "--diag-suppress=177"};
}

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CUDA_COMPILE_OPTIONS_H_
