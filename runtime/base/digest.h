// SHA-256, FIPS 180-4.
#ifndef KVFORGE_RUNTIME_BASE_DIGEST_H_
#define KVFORGE_RUNTIME_BASE_DIGEST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace kvforge {

inline constexpr size_t kDigestBytes = 32;

// Takes bytes in any number of pieces. Finish may be called once.
class Sha256 {
 public:
  Sha256& Update(absl::string_view bytes);
  std::string Finish();     // kDigestBytes raw bytes
  std::string FinishHex();  // 64 lower-case hexadecimal digits

 private:
  void Compress(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                    0xa54ff53a, 0x510e527f, 0x9b05688c,
                                    0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_ = {};
  size_t pending_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

std::string Sha256Bytes(absl::string_view bytes);
std::string Sha256Hex(absl::string_view bytes);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_BASE_DIGEST_H_
