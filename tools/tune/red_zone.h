// A buffer between two red zones: what a kernel writes beside its outputs
// shows.
#ifndef KVFORGE_TOOLS_TUNE_RED_ZONE_H_
#define KVFORGE_TOOLS_TUNE_RED_ZONE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/target_memory.h"

namespace kvforge::tune {

class RedZonedBuffer {
 public:
  // `name` is for errors: "out".
  static absl::StatusOr<RedZonedBuffer> Allocate(const Engine& engine,
                                                 std::string name,
                                                 size_t bytes);

  // 256-byte aligned.
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(buffer_.as<char>() + kZoneBytes);
  }
  size_t bytes() const { return bytes_; }

  // Fills the inside with `value` and renews the zones.
  absl::Status Reset(uint8_t value);
  // `values` at the beginning of the inside.
  absl::Status Write(const std::vector<uint8_t>& values);
  // kDataLoss, with the first byte, if a zone is not what it was.
  absl::Status CheckZones() const;
  absl::StatusOr<std::vector<uint8_t>> Inside() const;

 private:
  static constexpr size_t kZoneBytes = 4096;

  std::string name_;
  size_t bytes_ = 0;
  TargetBuffer buffer_;
};

}  // namespace kvforge::tune

#endif  // KVFORGE_TOOLS_TUNE_RED_ZONE_H_
