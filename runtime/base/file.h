// Whole files: read, and written so that a reader sees the old bytes or the new
// ones and never a part. Errors carry the path and the system's reason.
#ifndef KVFORGE_RUNTIME_BASE_FILE_H_
#define KVFORGE_RUNTIME_BASE_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvforge {

// Prefix of the temporaries that WriteFileAtomically makes beside its target; a
// process that dies while writing leaves one behind.
inline constexpr absl::string_view kTemporaryPrefix = ".tmp-";

// "<what> <path>: <reason of error_number>".
absl::Status FileError(int error_number, absl::string_view what,
                       absl::string_view path);

// kNotFound where there is no such file, kInvalidArgument for a folder,
// kOutOfRange for a file of more than max_bytes.
absl::StatusOr<std::string> ReadFile(absl::string_view path,
                                     int64_t max_bytes = int64_t{1} << 31);
// The same for a descriptor, from its current position; `path` is for errors.
absl::StatusOr<std::string> ReadDescriptor(int fd, absl::string_view path,
                                           int64_t max_bytes);

// Temporary in the same folder, fsync, rename, fsync of the folder. The folder
// must exist. The file's mode is 0600.
absl::Status WriteFileAtomically(absl::string_view path,
                                 absl::string_view bytes);

// Makes `path` and its missing parents, each with mode 0700.
absl::Status MakeFolders(absl::string_view path);

// Owns a descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { Close(); }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_BASE_FILE_H_
