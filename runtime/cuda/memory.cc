#include "runtime/cuda/memory.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

absl::Status CheckRange(size_t offset_bytes, size_t count_bytes,
                        size_t buffer_bytes) {
  if (offset_bytes <= buffer_bytes &&
      count_bytes <= buffer_bytes - offset_bytes) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(
      absl::StrCat("a copy of ", count_bytes, " bytes at offset ", offset_bytes,
                   " does not fit a device buffer of ", buffer_bytes,
                   " bytes; make the buffer larger or copy less"));
}

}  // namespace

absl::StatusOr<DeviceBuffer> DeviceBuffer::Allocate(DevicePtr device,
                                                    size_t bytes) {
  DeviceBuffer buffer;
  if (bytes > 0) {
    const ScopedContext context(*device);
    RETURN_IF_ERROR(context.status());
    const DriverApi& api = device->api();
    RETURN_IF_ERROR(
        api.Check(api.MemAlloc(&buffer.address_, bytes),
                  absl::StrCat("cannot allocate ", bytes, " bytes on GPU ",
                               device->ordinal(), " (", device->name(), ")")));
  }
  buffer.device_ = std::move(device);
  buffer.bytes_ = bytes;
  return buffer;
}

absl::StatusOr<DeviceBuffer> DeviceBuffer::FromHost(DevicePtr device,
                                                    const void* from,
                                                    size_t bytes) {
  ASSIGN_OR_RETURN(DeviceBuffer buffer, Allocate(std::move(device), bytes));
  RETURN_IF_ERROR(buffer.CopyFromHost(from, bytes));
  return buffer;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(std::move(other.device_)),
      address_(std::exchange(other.address_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this != &other) {
    Free();
    device_ = std::move(other.device_);
    address_ = std::exchange(other.address_, 0);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

DeviceBuffer::~DeviceBuffer() { Free(); }

void DeviceBuffer::Free() {
  if (address_ == 0) return;
  const ScopedContext context(*device_);
  if (context.status().ok()) device_->api().MemFree(address_);
  address_ = 0;
}

absl::Status DeviceBuffer::CopyFromHost(const void* from, size_t count_bytes,
                                        size_t offset_bytes) {
  RETURN_IF_ERROR(CheckRange(offset_bytes, count_bytes, bytes_));
  if (count_bytes == 0) return absl::OkStatus();
  const ScopedContext context(*device_);
  RETURN_IF_ERROR(context.status());
  const DriverApi& api = device_->api();
  return api.Check(api.MemcpyHtoD(address_ + offset_bytes, from, count_bytes),
                   "cuMemcpyHtoD");
}

absl::Status DeviceBuffer::CopyToHost(void* to, size_t count_bytes,
                                      size_t offset_bytes) const {
  RETURN_IF_ERROR(CheckRange(offset_bytes, count_bytes, bytes_));
  if (count_bytes == 0) return absl::OkStatus();
  const ScopedContext context(*device_);
  RETURN_IF_ERROR(context.status());
  const DriverApi& api = device_->api();
  return api.Check(api.MemcpyDtoH(to, address_ + offset_bytes, count_bytes),
                   "cuMemcpyDtoH");
}

absl::Status DeviceBuffer::Fill(uint8_t value) {
  if (bytes_ == 0) return absl::OkStatus();
  const ScopedContext context(*device_);
  RETURN_IF_ERROR(context.status());
  const DriverApi& api = device_->api();
  RETURN_IF_ERROR(
      api.Check(api.MemsetD8(address_, value, bytes_), "cuMemsetD8"));
  // A fill is queued on the null stream, which others do not wait for.
  return api.Check(api.StreamSynchronize(nullptr), "cuStreamSynchronize");
}

}  // namespace kvforge
