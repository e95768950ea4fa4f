// ParseEntry takes any bytes: an error, or an entry that serializes to an equal
// one. Bytes that were changed at random fail at a digest, so each input is
// also tried with the digests made right.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/base/digest.h"
#include "runtime/cache/entry.h"

namespace kvforge {
namespace {

// As runtime/cache/entry.h has them.
constexpr size_t kPreludeBytes = 24;
constexpr size_t kDigestBytes = 32;

void Check(absl::string_view bytes) {
  const absl::StatusOr<Entry> entry = ParseEntry(bytes);
  if (!entry.ok()) {
    if (entry.status().message().empty()) std::abort();
    return;
  }
  const absl::StatusOr<Entry> again = ParseEntry(SerializeEntry(*entry));
  if (!again.ok() || !(*again == *entry)) std::abort();
}

std::string DigestBytes(absl::string_view bytes) {
  const std::string hex = Sha256Hex(bytes);
  std::string digest;
  for (size_t i = 0; i < hex.size(); i += 2) {
    digest += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return digest;
}

void CheckWithDigests(std::string bytes) {
  if (bytes.size() < kPreludeBytes + 2 * kDigestBytes) return;
  uint32_t fields_bytes;
  std::memcpy(&fields_bytes, bytes.data() + 12, 4);
  if (fields_bytes > bytes.size() - kPreludeBytes - 2 * kDigestBytes) return;
  const size_t digest_at = kPreludeBytes + fields_bytes;
  const size_t payload_at = digest_at + 2 * kDigestBytes;
  const uint64_t payload_bytes = bytes.size() - payload_at;
  std::memcpy(bytes.data() + 16, &payload_bytes, 8);
  bytes.replace(digest_at, kDigestBytes, DigestBytes(bytes.substr(payload_at)));
  bytes.replace(digest_at + kDigestBytes, kDigestBytes,
                DigestBytes(bytes.substr(0, digest_at + kDigestBytes)));
  Check(bytes);
}

}  // namespace
}  // namespace kvforge

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  kvforge::Check(bytes);
  kvforge::CheckWithDigests(std::string(bytes));
  return 0;
}
