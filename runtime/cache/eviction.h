// Keeps one cache root under its byte cap.
#ifndef KVFORGE_RUNTIME_CACHE_EVICTION_H_
#define KVFORGE_RUNTIME_CACHE_EVICTION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace kvforge {

inline constexpr absl::string_view kEntrySuffix = ".kvk";
inline constexpr absl::string_view kDamagedSuffix = ".damaged";
inline constexpr absl::string_view kLockFolder = "locks";
inline constexpr absl::string_view kLockSuffix = ".lock";

struct TrimRequest {
  int64_t byte_cap = 0;
  absl::Duration fresh;         // files used this recently stay
  absl::string_view kept_path;  // as does this one; may be empty
  absl::Duration lock_timeout;  // one process trims a root at a time
};

struct TrimResult {
  int64_t entries_removed = 0;
  int64_t bytes_removed = 0;
  int64_t bytes_left = 0;
};

// Removes entries and damaged ones, least recently used first, until at most
// byte_cap bytes are left or only protected files are. The time of use is the
// modification time, which readers set; the access time is not looked at. Also
// removes temporaries and locks that dead processes left behind.
absl::StatusOr<TrimResult> TrimRoot(absl::string_view root,
                                    const TrimRequest& request);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CACHE_EVICTION_H_
