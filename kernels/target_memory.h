// Buffers on an engine's target, for tools, tests and examples; an engine has
// its own pools.
//
// On the host target a buffer ends at a page that faults when touched, and
// starts behind another, so an access past either end stops the process instead
// of reading a neighbour. Memory that is never touched costs nothing there,
// whatever its size.
#ifndef KVFORGE_KERNELS_TARGET_MEMORY_H_
#define KVFORGE_KERNELS_TARGET_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/engine.h"
#include "runtime/cuda/memory.h"

namespace kvforge {

class TargetBuffer {
 public:
  // `alignment` of the start, a power of two up to 4096 bytes. On the host the
  // end lies within `alignment` bytes of the guard page: at it exactly where
  // `bytes` is a multiple. On a GPU the start is always 256-byte aligned.
  // 0 bytes give a buffer whose data() may not be accessed.
  static absl::StatusOr<TargetBuffer> Allocate(const Engine& engine,
                                               size_t bytes,
                                               size_t alignment = 16);
  // Allocates and copies.
  static absl::StatusOr<TargetBuffer> FromHost(const Engine& engine,
                                               const void* from, size_t bytes,
                                               size_t alignment = 16);
  TargetBuffer() = default;
  TargetBuffer(TargetBuffer&& other) noexcept;
  TargetBuffer& operator=(TargetBuffer&& other) noexcept;
  ~TargetBuffer();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

  // These wait until they are done. kOutOfRange past the end.
  absl::Status CopyFromHost(const void* from, size_t bytes, size_t offset = 0);
  absl::Status CopyToHost(void* to, size_t bytes, size_t offset = 0) const;
  absl::Status Fill(uint8_t value);

 private:
  void Free();
  absl::Status CheckRange(size_t bytes, size_t offset) const;

  void* data_ = nullptr;
  size_t bytes_ = 0;
  void* mapping_ = nullptr;  // host only: guard pages included
  size_t mapping_bytes_ = 0;
  DeviceBuffer device_;
};

// Waits for the work queued on `stream` (a CUstream) of the engine's target.
absl::Status SynchronizeTarget(const Engine& engine, void* stream);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_TARGET_MEMORY_H_
