#include "runtime/cache/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace kvforge {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(1);
constexpr absl::Duration kLongestPause = absl::Milliseconds(50);

// Whether `path` still names the file behind `fd`: a holder removes the file
// before it lets go, and a lock on a removed file excludes nobody.
bool NamesFile(const std::string& path, int fd) {
  struct stat by_path;
  struct stat by_fd;
  return stat(path.c_str(), &by_path) == 0 && fstat(fd, &by_fd) == 0 &&
         by_path.st_ino == by_fd.st_ino && by_path.st_dev == by_fd.st_dev;
}

}  // namespace

absl::StatusOr<FileLock> FileLock::Acquire(absl::string_view path,
                                           absl::Duration timeout) {
  const std::string file(path);
  const absl::Time deadline = absl::Now() + timeout;
  absl::Duration pause = kFirstPause;
  while (true) {
    UniqueFd fd(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd.valid()) return FileError(errno, "cannot open lock", path);
    if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
      if (NamesFile(file, fd.get())) return FileLock(file, std::move(fd));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return FileError(errno, "cannot lock", path);
    const absl::Time now = absl::Now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("lock ", path, " was still held after ",
                       absl::FormatDuration(timeout)));
    }
    // Polled: a blocking flock knows no time limit.
    absl::SleepFor(std::min(pause, deadline - now));
    pause = std::min(pause * 2, kLongestPause);
  }
}

FileLock::~FileLock() {
  if (!fd_.valid()) return;
  unlink(path_.c_str());
  // Explicit: a child that was forked meanwhile shares the descriptor, and
  // closing ours alone would leave the lock with it.
  flock(fd_.get(), LOCK_UN);
}

}  // namespace kvforge
