// What decides a compiled kernel. Two kernels share a key exactly when all of
// these are equal; paths, host, time, device ordinal and the compiler's version
// are no part of it, so a process without a compiler finds primed kernels.
#ifndef KVFORGE_RUNTIME_CACHE_CACHE_KEY_H_
#define KVFORGE_RUNTIME_CACHE_CACHE_KEY_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace kvforge {

// Raised when the meaning of a key or of an entry's bytes changes.
inline constexpr int kCacheSchema = 1;

struct KeyFields {
  int schema = kCacheSchema;
  std::string spec;  // canonical SPEC: "decode/e4m3_row/d128/g4/page16/bf16"
  std::string tile;  // Tile::Text() of the resolved tile
  std::string arch;  // exact: "sm_90a" is not "sm_90"; "host-sm_80" on the CPU
  std::vector<std::string> options;  // of the compiler, in order
  std::string build_id;  // digest of the templates and the compiler's sources

  bool operator==(const KeyFields&) const = default;
};

// SHA-256, as 64 hexadecimal digits, of the fields in order, each prefixed with
// its length and the options also with their number.
std::string KeyDigest(const KeyFields& key);

// One line for people: "spec=... tile=... arch=... options=... build_id=...
// schema=1".
std::string KeyText(const KeyFields& key);

// Names of the fields in which a and b differ, in the order of the struct.
std::vector<absl::string_view> DifferingFields(const KeyFields& a,
                                               const KeyFields& b);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CACHE_CACHE_KEY_H_
