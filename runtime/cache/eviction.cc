#include "runtime/cache/eviction.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/status_macros.h"
#include "runtime/cache/file_lock.h"

namespace kvforge {
namespace {

// A live writer is done with its temporary long before this.
constexpr absl::Duration kAbandoned = absl::Hours(1);

struct CacheFile {
  std::string path;
  int64_t file_bytes = 0;
  uint64_t inode = 0;
  absl::Time last_used;
};

bool Examine(const std::string& path, CacheFile& file) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  file = {path, info.st_size, info.st_ino,
          absl::TimeFromTimespec(info.st_mtim)};
  return true;
}

// Names in a folder; empty where it cannot be read.
std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end;
       !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

void RemoveAbandonedLocks(const std::string& folder, absl::Time now) {
  for (const std::string& name : Names(folder)) {
    const std::string path = absl::StrCat(folder, "/", name);
    CacheFile file;
    if (!absl::EndsWith(name, kLockSuffix) || !Examine(path, file) ||
        now - file.last_used < kAbandoned) {
      continue;
    }
    // Taking it and letting it go removes it, and never one that is held.
    (void)FileLock::Acquire(path, absl::ZeroDuration());
  }
}

std::vector<CacheFile> Scan(const std::string& root, absl::Time now) {
  std::vector<CacheFile> files;
  for (const std::string& shard : Names(root)) {
    if (shard.size() != 2) continue;
    const std::string folder = absl::StrCat(root, "/", shard);
    for (const std::string& name : Names(folder)) {
      CacheFile file;
      if (!Examine(absl::StrCat(folder, "/", name), file)) continue;
      if (absl::StartsWith(name, kTemporaryPrefix)) {
        if (now - file.last_used >= kAbandoned) unlink(file.path.c_str());
      } else if (absl::EndsWith(name, kEntrySuffix) ||
                 absl::EndsWith(name, kDamagedSuffix)) {
        files.push_back(std::move(file));
      }
    }
  }
  return files;
}

}  // namespace

absl::StatusOr<TrimResult> TrimRoot(absl::string_view root,
                                    const TrimRequest& request) {
  const std::string folder(root);
  const std::string locks = absl::StrCat(folder, "/", kLockFolder);
  RETURN_IF_ERROR(MakeFolders(locks));
  ASSIGN_OR_RETURN(const FileLock lock,
                   FileLock::Acquire(absl::StrCat(locks, "/trim", kLockSuffix),
                                     request.lock_timeout));
  const absl::Time now = absl::Now();
  RemoveAbandonedLocks(locks, now);
  std::vector<CacheFile> files = Scan(folder, now);
  TrimResult result;
  for (const CacheFile& file : files) result.bytes_left += file.file_bytes;
  std::sort(
      files.begin(), files.end(), [](const CacheFile& a, const CacheFile& b) {
        return std::tie(a.last_used, a.path) < std::tie(b.last_used, b.path);
      });
  for (const CacheFile& file : files) {
    if (result.bytes_left <= request.byte_cap) break;
    if (file.path == request.kept_path ||
        now - file.last_used < request.fresh) {
      continue;
    }
    // Read or written again since the scan: no longer the oldest.
    CacheFile again;
    if (!Examine(file.path, again) || again.inode != file.inode ||
        again.last_used != file.last_used) {
      continue;
    }
    if (unlink(file.path.c_str()) != 0) continue;
    result.bytes_left -= file.file_bytes;
    result.bytes_removed += file.file_bytes;
    ++result.entries_removed;
  }
  return result;
}

}  // namespace kvforge
