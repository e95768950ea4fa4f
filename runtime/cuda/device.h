// A GPU of this machine and its primary context.
#ifndef KVFORGE_RUNTIME_CUDA_DEVICE_H_
#define KVFORGE_RUNTIME_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda/driver_api.h"

namespace kvforge {

struct DeviceLimits {
  int sm_count = 0;
  int shared_bytes_opt_in = 0;  // dynamic shared memory one block may ask for
  int shared_bytes_per_sm = 0;
  int shared_bytes_reserved = 0;  // taken by the driver from every block
  int threads_per_sm = 0;
  int registers_per_sm = 0;  // 32-bit registers
  int l2_bytes = 0;
  int64_t memory_bytes = 0;
};

// Retains the device's primary context for its lifetime. Thread safe. Shared,
// since buffers, streams and modules must not outlive it.
class Device {
 public:
  // kUnavailable without a driver or GPU, kInvalidArgument for an ordinal that
  // this process does not have.
  static absl::StatusOr<std::shared_ptr<const Device>> Open(int ordinal);
  static absl::StatusOr<int> Count();
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }
  int compute_capability() const { return compute_capability_; }  // 90
  const DeviceLimits& limits() const { return limits_; }
  CuContext context() const { return context_; }
  const DriverApi& api() const { return *api_; }

 private:
  Device() = default;

  const DriverApi* api_ = nullptr;
  int ordinal_ = 0;
  CuDevice handle_ = 0;
  CuContext context_ = nullptr;
  std::string name_;
  int compute_capability_ = 0;
  DeviceLimits limits_;
};

using DevicePtr = std::shared_ptr<const Device>;

// Makes a device's context current on this thread and gives the caller's back
// at the end of the scope. Check status() before relying on it. Costs one
// driver call where the context is current already.
class ScopedContext {
 public:
  explicit ScopedContext(const Device& device);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  const DriverApi& api_;
  bool pushed_ = false;
  absl::Status status_;
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CUDA_DEVICE_H_
