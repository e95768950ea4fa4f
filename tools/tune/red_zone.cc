#include "tools/tune/red_zone.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace kvforge::tune {
namespace {

constexpr uint8_t kZone = 0xA5;
constexpr size_t kAlignment = 256;

}  // namespace

absl::StatusOr<RedZonedBuffer> RedZonedBuffer::Allocate(const Engine& engine,
                                                        std::string name,
                                                        size_t bytes) {
  RedZonedBuffer zoned;
  zoned.name_ = std::move(name);
  zoned.bytes_ = bytes;
  ASSIGN_OR_RETURN(
      zoned.buffer_,
      TargetBuffer::Allocate(engine, bytes + 2 * kZoneBytes, kAlignment));
  return zoned;
}

absl::Status RedZonedBuffer::Reset(uint8_t value) {
  RETURN_IF_ERROR(buffer_.Fill(kZone));
  if (bytes_ == 0) return absl::OkStatus();
  const std::vector<uint8_t> inside(bytes_, value);
  return buffer_.CopyFromHost(inside.data(), bytes_, kZoneBytes);
}

absl::Status RedZonedBuffer::Write(const std::vector<uint8_t>& values) {
  return buffer_.CopyFromHost(values.data(), values.size(), kZoneBytes);
}

absl::Status RedZonedBuffer::CheckZones() const {
  std::vector<uint8_t> zone(kZoneBytes);
  for (const size_t start : {size_t{0}, kZoneBytes + bytes_}) {
    RETURN_IF_ERROR(buffer_.CopyToHost(zone.data(), kZoneBytes, start));
    for (size_t i = 0; i < kZoneBytes; ++i) {
      if (zone[i] == kZone) continue;
      const int64_t at =
          static_cast<int64_t>(start + i) - static_cast<int64_t>(kZoneBytes);
      return absl::DataLossError(absl::StrCat(
          "byte ", at, " of ", name_, ", which has ", bytes_, ", was written"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint8_t>> RedZonedBuffer::Inside() const {
  std::vector<uint8_t> inside(bytes_);
  RETURN_IF_ERROR(buffer_.CopyToHost(inside.data(), bytes_, kZoneBytes));
  return inside;
}

}  // namespace kvforge::tune
