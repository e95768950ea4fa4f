// What only the assembler's verbose log says about a kernel.
#ifndef KVFORGE_RUNTIME_CUDA_PTXAS_LOG_H_
#define KVFORGE_RUNTIME_CUDA_PTXAS_LOG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvforge {

struct PtxasFacts {
  int static_shared_bytes = 0;  // a block, without what the driver reserves
  int spill_bytes = 0;  // stores and loads, a thread, with called functions
};

// kInternal where the log says nothing about the kernel.
absl::StatusOr<PtxasFacts> ParsePtxasLog(absl::string_view log,
                                         absl::string_view kernel);

// The first line of a log of NVRTC that is a warning; empty without one.
absl::string_view FirstWarning(absl::string_view log);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CUDA_PTXAS_LOG_H_
