#include "kernels/target_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/stream.h"

namespace kvforge {

absl::StatusOr<TargetBuffer> TargetBuffer::Allocate(const Engine& engine,
                                                    size_t bytes,
                                                    size_t alignment) {
  TargetBuffer buffer;
  buffer.bytes_ = bytes;
  if (engine.target() == TargetKind::kCuda) {
    // A pointer to nothing is still a pointer, as on the host: null means that
    // an argument was left out.
    ASSIGN_OR_RETURN(
        buffer.device_,
        DeviceBuffer::Allocate(engine.device(), std::max<size_t>(bytes, 1)));
    buffer.data_ = buffer.device_.data();
    return buffer;
  }
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t padded = (bytes + alignment - 1) / alignment * alignment;
  const size_t middle = (padded + page - 1) / page * page;
  const size_t total = middle + 2 * page;
  void* mapping = mmap(nullptr, total, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "allocating ", bytes, " bytes of host memory: ", std::strerror(errno),
        "; use a smaller cache"));
  }
  buffer.mapping_ = mapping;
  buffer.mapping_bytes_ = total;
  char* first = static_cast<char*>(mapping) + page;
  if (middle > 0 && mprotect(first, middle, PROT_READ | PROT_WRITE) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "allocating ", bytes, " bytes of host memory: ", std::strerror(errno),
        "; use a smaller cache"));
  }
  buffer.data_ = first + middle - padded;
  return buffer;
}

absl::StatusOr<TargetBuffer> TargetBuffer::FromHost(const Engine& engine,
                                                    const void* from,
                                                    size_t bytes,
                                                    size_t alignment) {
  ASSIGN_OR_RETURN(TargetBuffer buffer, Allocate(engine, bytes, alignment));
  RETURN_IF_ERROR(buffer.CopyFromHost(from, bytes));
  return buffer;
}

TargetBuffer::TargetBuffer(TargetBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(std::exchange(other.mapping_bytes_, 0)),
      device_(std::move(other.device_)) {}

TargetBuffer& TargetBuffer::operator=(TargetBuffer&& other) noexcept {
  if (this == &other) return *this;
  Free();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  mapping_ = std::exchange(other.mapping_, nullptr);
  mapping_bytes_ = std::exchange(other.mapping_bytes_, 0);
  device_ = std::move(other.device_);
  return *this;
}

TargetBuffer::~TargetBuffer() { Free(); }

void TargetBuffer::Free() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
  mapping_ = nullptr;
}

absl::Status TargetBuffer::CheckRange(size_t bytes, size_t offset) const {
  if (offset <= bytes_ && bytes <= bytes_ - offset) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("copying ", bytes, " bytes at offset ", offset,
                   "; the buffer has ", bytes_, "; copy a part of it"));
}

absl::Status TargetBuffer::CopyFromHost(const void* from, size_t bytes,
                                        size_t offset) {
  RETURN_IF_ERROR(CheckRange(bytes, offset));
  if (bytes == 0) return absl::OkStatus();
  if (mapping_ == nullptr) return device_.CopyFromHost(from, bytes, offset);
  std::memcpy(static_cast<char*>(data_) + offset, from, bytes);
  return absl::OkStatus();
}

absl::Status TargetBuffer::CopyToHost(void* to, size_t bytes,
                                      size_t offset) const {
  RETURN_IF_ERROR(CheckRange(bytes, offset));
  if (bytes == 0) return absl::OkStatus();
  if (mapping_ == nullptr) return device_.CopyToHost(to, bytes, offset);
  std::memcpy(to, static_cast<char*>(data_) + offset, bytes);
  return absl::OkStatus();
}

absl::Status TargetBuffer::Fill(uint8_t value) {
  if (bytes_ == 0) return absl::OkStatus();
  if (mapping_ == nullptr) return device_.Fill(value);
  std::memset(data_, value, bytes_);
  return absl::OkStatus();
}

absl::Status SynchronizeTarget(const Engine& engine, void* stream) {
  if (engine.target() == TargetKind::kHost) return absl::OkStatus();
  return Synchronize(*engine.device(), static_cast<CuStream>(stream));
}

}  // namespace kvforge
