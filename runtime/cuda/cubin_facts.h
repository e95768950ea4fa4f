// What a cubin says about a kernel in it, read from the ELF file itself: needs
// no driver and no toolkit.
#ifndef KVFORGE_RUNTIME_CUDA_CUBIN_FACTS_H_
#define KVFORGE_RUNTIME_CUDA_CUBIN_FACTS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvforge {

struct CubinFacts {
  int compute_capability = 0;  // 90 for sm_90 and sm_90a
  int registers = 0;           // a thread
  int local_bytes = 0;         // stack frame, a thread
  int param_bytes = 0;         // size of the kernel's parameters
  int toolkit_version = 0;     // 130 for CUDA 13.0
};

// kNotFound where the cubin has no kernel of that name; kDataLoss where it is
// no whole cubin, with the place. Never reads outside `cubin`.
absl::StatusOr<CubinFacts> ReadCubinFacts(absl::string_view cubin,
                                          absl::string_view kernel);

// The initial value of `extern "C" __constant__ int <name>`. kNotFound where
// there is none of that name.
absl::StatusOr<int> ReadConstantInt(absl::string_view cubin,
                                    absl::string_view name);

// The same, with -1 where there is none of that name.
absl::StatusOr<int> ReadOptionalConstantInt(absl::string_view cubin,
                                            absl::string_view name);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CUDA_CUBIN_FACTS_H_
