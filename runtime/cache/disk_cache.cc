#include "runtime/cache/disk_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr int64_t kMaxEntryBytes = int64_t{256} << 20;
// A publish scans the root only after this part of the cap was published.
constexpr int64_t kScansPerCap = 64;
constexpr absl::Duration kTrimTimeout = absl::Seconds(10);

struct OpenedEntry {
  UniqueFd fd;
  struct stat info = {};
};

// Opens a file and refuses one that another user could have written.
absl::StatusOr<OpenedEntry> OpenEntry(const std::string& path, bool trusted) {
  OpenedEntry opened;
  // O_NONBLOCK: a pipe in the file's place must not hang the process.
  opened.fd = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened.fd.valid()) return FileError(errno, "cannot open", path);
  if (fstat(opened.fd.get(), &opened.info) != 0) {
    return FileError(errno, "cannot examine", path);
  }
  if (!S_ISREG(opened.info.st_mode)) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " is no regular file"));
  }
  if (!trusted && opened.info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, " belongs to user ", opened.info.st_uid, ", not to user ",
        geteuid(), "; list its root in KVFORGE_CACHE_TRUSTED to load it"));
  }
  if (!trusted && (opened.info.st_mode & S_IWOTH) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, " may be written by every user; take that permission away or ",
        "list its root in KVFORGE_CACHE_TRUSTED to load it"));
  }
  return opened;
}

absl::StatusOr<Entry> ReadEntry(const OpenedEntry& opened,
                                const std::string& path) {
  absl::StatusOr<std::string> bytes =
      ReadDescriptor(opened.fd.get(), path, kMaxEntryBytes);
  if (absl::IsOutOfRange(bytes.status())) {
    return absl::DataLossError(bytes.status().message());
  }
  RETURN_IF_ERROR(bytes.status());
  return ParseEntry(*bytes);
}

absl::Status WrongKey(const KeyFields& found) {
  return absl::DataLossError(
      absl::StrCat("it holds another kernel: ", KeyText(found)));
}

bool SetAside(const std::string& path, const struct stat& read) {
  struct stat now;
  // Another process may have put a good entry in its place meanwhile.
  if (stat(path.c_str(), &now) != 0 || now.st_ino != read.st_ino) return false;
  return rename(path.c_str(), absl::StrCat(path, kDamagedSuffix).c_str()) == 0;
}

std::string LockPath(absl::string_view root, const KeyFields& key) {
  return absl::StrCat(root, "/", kLockFolder, "/", KeyDigest(key), kLockSuffix);
}

}  // namespace

DiskCacheOptions DiskCacheOptionsFromKnobs(const Knobs& knobs) {
  DiskCacheOptions options;
  options.byte_cap = knobs.cache_bytes;
  for (const std::string& path : knobs.cache_dirs) {
    const auto& trusted = knobs.trusted_cache_dirs;
    options.roots.push_back({path, std::find(trusted.begin(), trusted.end(),
                                             path) != trusted.end()});
  }
  return options;
}

DiskCache::DiskCache(DiskCacheOptions options) : options_(std::move(options)) {}

std::string DiskCache::EntryPath(absl::string_view root, const KeyFields& key) {
  const std::string digest = KeyDigest(key);
  return absl::StrCat(root, "/", digest.substr(0, 2), "/", digest.substr(2),
                      kEntrySuffix);
}

void DiskCache::WarnOnce(absl::string_view path, absl::string_view message) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!warned_paths_.insert(std::string(path)).second) return;
  }
  if (options_.warn) options_.warn(message);
}

void DiskCache::Report(const std::string& path, const absl::Status& status,
                       bool set_aside) {
  WarnOnce(
      path,
      absl::StrCat("cache entry ", path, " is not used: ", status.message(),
                   set_aside ? absl::StrCat("; moved to ", path, kDamagedSuffix)
                             : std::string(),
                   "; the kernel is looked for elsewhere or compiled"));
}

std::optional<Entry> DiskCache::Lookup(const KeyFields& key) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (refused_digests_.count(KeyDigest(key)) != 0) return std::nullopt;
  }
  for (const CacheRoot& root : options_.roots) {
    const bool writable = &root == &options_.roots.front();
    const std::string path = EntryPath(root.path, key);
    absl::StatusOr<OpenedEntry> opened = OpenEntry(path, root.trusted);
    if (absl::IsNotFound(opened.status())) continue;
    if (!opened.ok()) {
      Report(path, opened.status(), false);
      continue;
    }
    absl::StatusOr<Entry> entry = ReadEntry(*opened, path);
    if (entry.ok() && entry->key != key) entry = WrongKey(entry->key);
    if (entry.ok()) {
      if (writable) futimens(opened->fd.get(), nullptr);
      return *std::move(entry);
    }
    // Anything but damage, such as a network file system's hiccup, may be gone
    // at the next lookup.
    const bool damaged = absl::IsDataLoss(entry.status());
    Report(path, entry.status(),
           damaged && writable && SetAside(path, opened->info));
  }
  return std::nullopt;
}

absl::Status DiskCache::Publish(const Entry& entry) {
  if (options_.roots.empty()) {
    return absl::FailedPreconditionError(
        "no cache folder to write to; set KVFORGE_CACHE_DIR to keep compiled "
        "kernels between processes");
  }
  const std::string path = EntryPath(options_.roots.front().path, entry.key);
  const std::string bytes = SerializeEntry(entry);
  RETURN_IF_ERROR(
      MakeFolders(std::filesystem::path(path).parent_path().string()));
  RETURN_IF_ERROR(WriteFileAtomically(path, bytes));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    refused_digests_.erase(KeyDigest(entry.key));
  }
  TrimAfterPublish(path, static_cast<int64_t>(bytes.size()));
  return absl::OkStatus();
}

void DiskCache::TrimAfterPublish(const std::string& kept_path,
                                 int64_t published_bytes) {
  if (options_.byte_cap <= 0) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes_before_trim_ -= published_bytes;
    if (bytes_before_trim_ > 0) return;
    bytes_before_trim_ = options_.byte_cap / kScansPerCap;
  }
  // Not to be waited for: whoever holds the lock trims as well.
  TrimRequest request = {options_.byte_cap, options_.fresh, kept_path,
                         absl::ZeroDuration()};
  (void)TrimRoot(options_.roots.front().path, request);
}

absl::StatusOr<TrimResult> DiskCache::Trim(int64_t byte_cap) {
  if (options_.roots.empty()) {
    return absl::FailedPreconditionError(
        "no cache folder to trim; set KVFORGE_CACHE_DIR or name one");
  }
  return TrimRoot(options_.roots.front().path,
                  {byte_cap, absl::ZeroDuration(), {}, kTrimTimeout});
}

void DiskCache::Quarantine(const KeyFields& key, absl::string_view reason) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    refused_digests_.insert(KeyDigest(key));
  }
  for (const CacheRoot& root : options_.roots) {
    const bool writable = &root == &options_.roots.front();
    const std::string path = EntryPath(root.path, key);
    struct stat info;
    if (stat(path.c_str(), &info) != 0) continue;
    Report(path, absl::DataLossError(reason), writable && SetAside(path, info));
  }
}

absl::StatusOr<FileLock> DiskCache::Lock(const KeyFields& key,
                                         absl::Duration timeout) {
  if (options_.roots.empty()) {
    return absl::FailedPreconditionError("no cache folder to lock in");
  }
  const std::string& root = options_.roots.front().path;
  RETURN_IF_ERROR(MakeFolders(absl::StrCat(root, "/", kLockFolder)));
  return FileLock::Acquire(LockPath(root, key), timeout);
}

std::vector<ListedEntry> DiskCache::List() const {
  std::vector<ListedEntry> listed;
  for (const CacheRoot& root : options_.roots) {
    std::error_code error;
    std::vector<std::string> paths;
    for (std::filesystem::recursive_directory_iterator it(
             root.path,
             std::filesystem::directory_options::skip_permission_denied, error),
         end;
         !error && it != end; it.increment(error)) {
      const std::string path = it->path().string();
      if (absl::EndsWith(path, kEntrySuffix)) paths.push_back(path);
    }
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      ListedEntry item = {path, root.path, 0, absl::InfinitePast(),
                          absl::UnknownError("")};
      absl::StatusOr<OpenedEntry> opened = OpenEntry(path, root.trusted);
      if (absl::IsNotFound(opened.status())) continue;  // evicted meanwhile
      if (opened.ok()) {
        item.file_bytes = opened->info.st_size;
        item.last_used = absl::TimeFromTimespec(opened->info.st_mtim);
        item.entry = ReadEntry(*opened, path);
        if (item.entry.ok() &&
            !absl::EndsWith(path, EntryPath("", item.entry->key))) {
          item.entry = WrongKey(item.entry->key);
        }
      } else {
        item.entry = opened.status();
      }
      listed.push_back(std::move(item));
    }
  }
  return listed;
}

}  // namespace kvforge
