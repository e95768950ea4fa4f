// The reader of safetensors files takes any bytes: an error, or tensors that
// lie inside the file and have as many bytes as their shapes say.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tools/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvforge;
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Parse(
      std::string(reinterpret_cast<const char*>(data), size), "fuzzed");
  if (!file.ok()) {
    if (file.status().message().empty()) std::abort();
    return 0;
  }
  size_t total_bytes = 0;
  for (const auto& [name, tensor] : file->tensors()) {
    const int64_t bytes =
        tensor.ElementCount() * SafetensorsDTypeBytes(tensor.dtype);
    if (bytes != static_cast<int64_t>(tensor.bytes.size())) std::abort();
    unsigned sum = 0;  // reads every byte
    for (uint8_t byte : tensor.bytes) sum += byte;
    if (sum > 255u * tensor.bytes.size()) std::abort();
    total_bytes += tensor.bytes.size();
    if (!file->Find(name, tensor.dtype, tensor.shape).ok()) std::abort();
  }
  if (total_bytes > size) std::abort();
  return 0;
}
