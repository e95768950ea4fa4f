// What makes two GPUs the same to a tuning table.
#ifndef KVFORGE_RUNTIME_TUNE_FINGERPRINT_H_
#define KVFORGE_RUNTIME_TUNE_FINGERPRINT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "runtime/cuda/device.h"

namespace kvforge {

// "NVIDIA H200 sm_90 132 SMs 232448+1024/233472 shared 65536 registers 2048
// threads 50 MiB L2 140 GiB": a slice of a GPU, or another model of one
// compute capability, is another device. No driver version, clock or ordinal.
std::string DeviceFingerprint(absl::string_view name, int compute_capability,
                              const DeviceLimits& limits);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_TUNE_FINGERPRINT_H_
