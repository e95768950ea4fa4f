#include "runtime/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

// Removes a temporary unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string path) : path_(std::move(path)) {}
  ~TemporaryFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  void Keep() { path_.clear(); }

 private:
  std::string path_;
};

absl::string_view Folder(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status WriteAll(int fd, absl::string_view bytes, absl::string_view path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return FileError(errno, "cannot write", path);
    }
    bytes.remove_prefix(written);
  }
  return absl::OkStatus();
}

absl::Status SyncFolder(const std::string& folder) {
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return FileError(errno, "cannot open folder", folder);
  // Some file systems have no fsync of folders; their renames are as durable
  // as they get.
  if (fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    return FileError(errno, "cannot sync folder", folder);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FileError(int error_number, absl::string_view what,
                       absl::string_view path) {
  return absl::ErrnoToStatus(error_number, absl::StrCat(what, " ", path));
}

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void UniqueFd::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

absl::StatusOr<std::string> ReadDescriptor(int fd, absl::string_view path,
                                           int64_t max_bytes) {
  std::string bytes;
  size_t used = 0;
  struct stat info;
  // One byte more than the size, so that the end shows without another round.
  bytes.resize(fstat(fd, &info) == 0 && info.st_size > 0
                   ? std::min<int64_t>(info.st_size, max_bytes) + 1
                   : kReadBytes);
  while (true) {
    const ssize_t got = read(fd, bytes.data() + used, bytes.size() - used);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EISDIR) {
        return absl::InvalidArgumentError(
            absl::StrCat("cannot read ", path, ": it is a folder"));
      }
      return FileError(errno, "cannot read", path);
    }
    if (got == 0) break;
    used += got;
    if (static_cast<int64_t>(used) > max_bytes) {
      return absl::OutOfRangeError(absl::StrCat(
          "cannot read ", path, ": it has more than ", max_bytes, " bytes"));
    }
    if (used == bytes.size()) bytes.resize(used + kReadBytes);
  }
  bytes.resize(used);
  return bytes;
}

absl::StatusOr<std::string> ReadFile(absl::string_view path,
                                     int64_t max_bytes) {
  const UniqueFd fd(open(std::string(path).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return FileError(errno, "cannot open", path);
  return ReadDescriptor(fd.get(), path, max_bytes);
}

absl::Status WriteFileAtomically(absl::string_view path,
                                 absl::string_view bytes) {
  const std::string target(path);
  const std::string folder(Folder(path));
  std::string pattern = absl::StrCat(folder, "/", kTemporaryPrefix, "XXXXXX");
  UniqueFd fd(mkostemp(pattern.data(), O_CLOEXEC));
  if (!fd.valid()) return FileError(errno, "cannot make a file in", folder);
  TemporaryFile temporary(pattern);
  RETURN_IF_ERROR(WriteAll(fd.get(), bytes, pattern));
  if (fsync(fd.get()) != 0) return FileError(errno, "cannot sync", pattern);
  fd.Close();
  if (rename(pattern.c_str(), target.c_str()) != 0) {
    return FileError(errno, absl::StrCat("cannot rename ", pattern, " to"),
                     path);
  }
  temporary.Keep();
  return SyncFolder(folder);
}

absl::Status MakeFolders(absl::string_view path) {
  const std::string folder(path);
  if (folder.empty()) {
    return absl::InvalidArgumentError("cannot make a folder without a name");
  }
  for (size_t end = folder.find('/', 1);; end = folder.find('/', end + 1)) {
    const std::string part = folder.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0) {
      // A read-only file system says EROFS even for a folder that is there.
      const int reason = errno;
      struct stat info;
      if (stat(part.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
        return FileError(reason, "cannot make folder", part);
      }
    }
    if (end == std::string::npos) return absl::OkStatus();
  }
}

}  // namespace kvforge
