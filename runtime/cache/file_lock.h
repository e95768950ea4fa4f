// A lock between processes that the kernel releases when its holder dies.
#ifndef KVFORGE_RUNTIME_CACHE_FILE_LOCK_H_
#define KVFORGE_RUNTIME_CACHE_FILE_LOCK_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/file.h"

namespace kvforge {

// An exclusive flock on a file made for it. Excludes other threads as well as
// other processes. The destructor releases it and removes the file.
class FileLock {
 public:
  // Waits at most `timeout`; kDeadlineExceeded if it is still held then. The
  // folder of `path` must exist.
  static absl::StatusOr<FileLock> Acquire(absl::string_view path,
                                          absl::Duration timeout);
  FileLock(FileLock&&) = default;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  FileLock(std::string path, UniqueFd fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  UniqueFd fd_;
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CACHE_FILE_LOCK_H_
