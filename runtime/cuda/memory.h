// Device memory with an owner. The copies wait until they are done.
#ifndef KVFORGE_RUNTIME_CUDA_MEMORY_H_
#define KVFORGE_RUNTIME_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/driver_api.h"

namespace kvforge {

// Bytes in a device's memory, 256-byte aligned. Free it only when no queued
// work uses it.
class DeviceBuffer {
 public:
  // kResourceExhausted where the device has not that much left. 0 bytes give an
  // empty buffer with a null pointer.
  static absl::StatusOr<DeviceBuffer> Allocate(DevicePtr device, size_t bytes);
  // Allocates and copies.
  static absl::StatusOr<DeviceBuffer> FromHost(DevicePtr device,
                                               const void* from, size_t bytes);
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  CuDevicePtr address() const { return address_; }
  void* data() const { return reinterpret_cast<void*>(address_); }
  size_t bytes() const { return bytes_; }

  // kOutOfRange where offset_bytes + count_bytes exceeds bytes().
  absl::Status CopyFromHost(const void* from, size_t count_bytes,
                            size_t offset_bytes = 0);
  absl::Status CopyToHost(void* to, size_t count_bytes,
                          size_t offset_bytes = 0) const;
  absl::Status Fill(uint8_t value);

 private:
  void Free();

  DevicePtr device_;
  CuDevicePtr address_ = 0;
  size_t bytes_ = 0;
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CUDA_MEMORY_H_
