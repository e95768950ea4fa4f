// Compiled kernels on disk: a list of roots, the first one written to, primed
// ones behind it only read. An entry lies at <root>/<2 digits>/<62 digits>.kvk
// of its key's digest.
//
// Damage is a miss: a file that does not parse, or whose key is not the one
// asked for, is renamed to *.damaged in the first root, left alone in the
// others, and reported once. Nothing here ever fails the caller's kernel.
#ifndef KVFORGE_RUNTIME_CACHE_DISK_CACHE_H_
#define KVFORGE_RUNTIME_CACHE_DISK_CACHE_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/knobs.h"
#include "runtime/cache/cache_key.h"
#include "runtime/cache/entry.h"
#include "runtime/cache/eviction.h"
#include "runtime/cache/file_lock.h"

namespace kvforge {

struct CacheRoot {
  std::string path;
  // Load entries that another user owns or that anyone may write.
  bool trusted = false;
};

struct DiskCacheOptions {
  std::vector<CacheRoot> roots;           // may be empty: every lookup misses
  int64_t byte_cap = kDefaultCacheBytes;  // of roots[0]; 0 = none
  // Entries used this recently are never evicted, so that a process may read
  // what another has just published even where one burst exceeds the cap.
  absl::Duration fresh = absl::Minutes(1);
  // Called once a path, from any thread; may be null.
  std::function<void(absl::string_view message)> warn;
};

DiskCacheOptions DiskCacheOptionsFromKnobs(const Knobs& knobs);

// A file of the cache as `cache list` and `verify` show it.
struct ListedEntry {
  std::string path;
  std::string root;
  int64_t file_bytes = 0;
  absl::Time last_used;
  absl::StatusOr<Entry> entry;  // or what is wrong with the file
};

// Thread safe, and safe against other processes on the same roots.
class DiskCache {
 public:
  explicit DiskCache(DiskCacheOptions options);

  // The first root's entry that is whole, owned well and has exactly this key.
  // A hit in roots[0] marks the entry as used.
  std::optional<Entry> Lookup(const KeyFields& key);

  // Writes the entry to roots[0], replacing one of the same key, then trims to
  // the cap. An error is for the log: the kernel in hand stays good.
  // kFailedPrecondition where there is no root to write to.
  absl::Status Publish(const Entry& entry);

  // Sets aside the entry of a key whose payload turned out not to load, and
  // warns. Later lookups of this object skip every root's entry of this key
  // until it is published again.
  void Quarantine(const KeyFields& key, absl::string_view reason);

  // Every *.kvk of every root, in order of path. Reads and checks each file,
  // its place and its owner.
  std::vector<ListedEntry> List() const;

  // Removes the least recently used files of roots[0] until at most byte_cap
  // bytes are left.
  absl::StatusOr<TrimResult> Trim(int64_t byte_cap);

  // Lock of one key in roots[0] between processes.
  absl::StatusOr<FileLock> Lock(const KeyFields& key, absl::Duration timeout);

  const std::vector<CacheRoot>& roots() const { return options_.roots; }
  // Where the entry of a key lies under a root.
  static std::string EntryPath(absl::string_view root, const KeyFields& key);

 private:
  void WarnOnce(absl::string_view path, absl::string_view message);
  // What is wrong with a file that was asked for or listed.
  void Report(const std::string& path, const absl::Status& status,
              bool set_aside);
  void TrimAfterPublish(const std::string& kept_path, int64_t published_bytes);

  const DiskCacheOptions options_;
  std::mutex mutex_;
  // All guarded by mutex_.
  std::set<std::string> warned_paths_;
  std::set<std::string> refused_digests_;
  int64_t bytes_before_trim_ = 0;  // to publish before the root is scanned
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CACHE_DISK_CACHE_H_
