// One compiled kernel as one self-describing file.
//
//   byte 0    magic "kvforge\n"
//        8    u32  schema (kCacheSchema)
//        12   u32  fields_bytes
//        16   u64  payload_bytes
//        24   fields: pairs of name and value, each a u32 length and its bytes
//        ..   SHA-256 of the payload
//        ..   SHA-256 of everything before it
//        ..   payload, up to the end of the file
//
// Integers are little-endian. The fields hold the whole key, the symbol and the
// facts, as text.
#ifndef KVFORGE_RUNTIME_CACHE_ENTRY_H_
#define KVFORGE_RUNTIME_CACHE_ENTRY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/cache/cache_key.h"

namespace kvforge {

// What a launch needs and what a reader of the cache wants to know. Recorded,
// no part of the key.
struct LaunchFacts {
  int registers = 0;            // a thread
  int static_shared_bytes = 0;  // a block
  int dynamic_shared_bytes = 0;
  int block_threads = 0;
  int spill_bytes = 0;      // stores and loads, a thread
  int local_bytes = 0;      // stack frame, a thread
  std::string compiler;     // "nvrtc 13.0"
  std::string text_digest;  // SHA-256 of the compiled text, hexadecimal
  std::string compiled_at;  // UTC; "" from the engine: bytes follow the key

  bool operator==(const LaunchFacts&) const = default;
};

struct Entry {
  KeyFields key;
  std::string symbol;  // entry point inside the payload
  LaunchFacts facts;
  std::string payload;  // cubin or object

  bool operator==(const Entry&) const = default;
};

std::string SerializeEntry(const Entry& entry);

// kDataLoss says at which byte what was wrong. Every length is checked against
// the bytes there are before it is used.
absl::StatusOr<Entry> ParseEntry(absl::string_view bytes);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CACHE_ENTRY_H_
