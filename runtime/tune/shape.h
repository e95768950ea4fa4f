// The sizes of a launch that a tile is chosen for, as buckets.
#ifndef KVFORGE_RUNTIME_TUNE_SHAPE_H_
#define KVFORGE_RUNTIME_TUNE_SHAPE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvforge {

struct TuneShape {
  int batch = 1;         // sequences
  int num_kv_heads = 8;  // of the cache
  int q_len = 1;         // query tokens of a sequence
  int kv_len = 1;        // its cached tokens, the new ones included

  // "b64/h8/q1/kv8192".
  std::string Text() const;
  // Each number rounded up to a power of two: what a table is keyed by.
  TuneShape Bucket() const;
  bool operator==(const TuneShape&) const = default;
};

// kInvalidArgument for other text, and for more query tokens than keys.
absl::StatusOr<TuneShape> ParseShape(absl::string_view text);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_TUNE_SHAPE_H_
