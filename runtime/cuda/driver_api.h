// The CUDA driver, opened by name at the first use: nothing of CUDA is linked
// or included, so a machine without a driver runs everything else.
#ifndef KVFORGE_RUNTIME_CUDA_DRIVER_API_H_
#define KVFORGE_RUNTIME_CUDA_DRIVER_API_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvforge {

// The driver's handles, with its ABI: an engine's CUstream or cudaStream_t
// converts by reinterpret_cast.
using CuDevice = int;
using CuDevicePtr = unsigned long long;
using CuContext = struct KvforgeCuContextOpaque*;
using CuStream = struct KvforgeCuStreamOpaque*;
using CuEvent = struct KvforgeCuEventOpaque*;
using CuGraph = struct KvforgeCuGraphOpaque*;
using CuGraphExec = struct KvforgeCuGraphExecOpaque*;
using CuGraphNode = struct KvforgeCuGraphNodeOpaque*;
using CuLibrary = struct KvforgeCuLibraryOpaque*;
using CuKernel = struct KvforgeCuKernelOpaque*;
using CuFunction = struct KvforgeCuFunctionOpaque*;

// CUlaunchAttribute and CUlaunchConfig.
struct CuLaunchAttribute {
  int id;
  int padding;
  union {
    int enabled;
    long long words[8];
  };
};
struct CuLaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  CuStream stream;
  CuLaunchAttribute* attributes;
  unsigned num_attributes;
};
static_assert(sizeof(CuLaunchAttribute) == 72 && sizeof(CuLaunchConfig) == 56);

// CUDA_KERNEL_NODE_PARAMS_v2. The graph owns what the pointers lead to.
struct CuKernelNodeParams {
  CuFunction function;  // null: `kernel`
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void** parameters;
  void** extra;
  CuKernel kernel;
  CuContext context;
};
static_assert(sizeof(CuKernelNodeParams) == 72);

struct DriverApi {
#define KVFORGE_DRIVER_SYMBOL(member, exported, parameters) \
  int(*member) parameters = nullptr;
#include "runtime/cuda/driver_symbols.inc"
#undef KVFORGE_DRIVER_SYMBOL

  int version = 0;  // 13000 for CUDA 13.0

  // The process's driver, opened and initialised at the first call; thread
  // safe. kUnavailable where there is no driver or it finds no GPU,
  // kFailedPrecondition where it is too old; both say what to do.
  static absl::StatusOr<const DriverApi*> Get();

  // OK for CUDA_SUCCESS; otherwise "<what>: CUDA_ERROR_...: <its text>" with a
  // code that fits: kResourceExhausted for memory, kInternal by default.
  absl::Status Check(int result, absl::string_view what) const;
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CUDA_DRIVER_API_H_
