// An entry with a different value in every field.
#ifndef KVFORGE_TESTS_RUNTIME_SAMPLE_ENTRY_H_
#define KVFORGE_TESTS_RUNTIME_SAMPLE_ENTRY_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/cache/entry.h"

namespace kvforge {

inline KeyFields SampleKey(int page_size = 16) {
  return {kCacheSchema,
          absl::StrCat("decode/e4m3_row/d128/g4/page", page_size, "/bf16"),
          "8x64/3/4",
          "sm_90a",
          {"--std=c++17", "--fmad=false"},
          "0123456789abcdef"};
}

inline Entry SampleEntry(int page_size = 16) {
  Entry entry;
  entry.key = SampleKey(page_size);
  entry.symbol = "kvforge_kernel";
  entry.facts = {.registers = 96,
                 .static_shared_bytes = 256,
                 .dynamic_shared_bytes = 66560,
                 .block_threads = 128,
                 .spill_bytes = 4,
                 .local_bytes = 8,
                 .compiler = "nvrtc 13.0",
                 .text_digest = "feed",
                 .compiled_at = "2025-01-31T12:00:00Z"};
  entry.payload = absl::StrCat("payload of page ", page_size);
  entry.payload.push_back('\0');
  entry.payload += "tail";
  return entry;
}

}  // namespace kvforge

#endif  // KVFORGE_TESTS_RUNTIME_SAMPLE_ENTRY_H_
