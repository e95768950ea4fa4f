// From a key to a compiled kernel: memory, then disk, then the compiler.
// Understands bytes only; loading them is the caller's.
#ifndef KVFORGE_RUNTIME_KERNEL_STORE_H_
#define KVFORGE_RUNTIME_KERNEL_STORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/cache/cache_key.h"
#include "runtime/cache/disk_cache.h"
#include "runtime/cache/entry.h"

namespace kvforge {

struct KernelRequest {
  KeyFields key;
  std::string gpu;     // "sm_89": the GPU that the text is specialised for
  std::string target;  // "cuda" or "host"
};

// kWaited: another thread of the process was fetching or compiling it.
enum class KernelSource { kMemory, kDisk, kCompiled, kWaited };

// Compiles a request. Called from the thread that asked, at most once at a time
// for one key; must be thread safe. The store sets the entry's key.
using CompileFunction =
    std::function<absl::StatusOr<Entry>(const KernelRequest& request)>;

struct CompileReport {
  const KernelRequest& request;
  const Entry& entry;
  double milliseconds;
};

struct KernelStoreOptions {
  DiskCacheOptions cache;
  CompileFunction compile;  // null: strict, a miss is an error
  bool recompile = false;   // ignore entries on disk, still write them
  // After each successful compile, from its thread; may be null.
  std::function<void(const CompileReport&)> on_compile;
  // Lines for a log, such as a failure to publish; may be null.
  std::function<void(absl::string_view line)> log;
  // How long to wait for another process that compiles the same key; after
  // that it is compiled here too.
  absl::Duration lock_timeout = absl::Seconds(30);
  // Payload bytes kept in memory; the least recently used leave first.
  int64_t memory_bytes = int64_t{64} << 20;
};

// Thread safe. Distinct keys compile in parallel, on their callers' threads;
// callers bound that by cores and memory.
class KernelStore {
 public:
  explicit KernelStore(KernelStoreOptions options);
  KernelStore(const KernelStore&) = delete;
  KernelStore& operator=(const KernelStore&) = delete;

  // kNotFound in strict mode, naming the key, the roots and `kvforge prime`; a
  // failed compile's own error otherwise, which is not kept: the next call
  // compiles again. *source says where the entry came from; may be null.
  absl::StatusOr<std::shared_ptr<const Entry>> Get(
      const KernelRequest& request, KernelSource* source = nullptr);

  // Memory or disk; never compiles. The kNotFound of strict mode otherwise.
  absl::StatusOr<std::shared_ptr<const Entry>> Find(
      const KernelRequest& request, KernelSource* source = nullptr);

  // For an entry whose payload does not load: forgets it and sets its file
  // aside, so that the next Get compiles.
  void Discard(const KeyFields& key, absl::string_view reason);

  // Successful and failed compiles of this store.
  int64_t compile_count() const { return compile_count_.load(); }
  bool strict() const { return options_.compile == nullptr; }
  DiskCache& disk() { return disk_; }

 private:
  using SharedEntry = std::shared_ptr<const Entry>;
  struct Flight;  // one fetch that several threads wait for
  struct Remembered {
    SharedEntry entry;
    std::list<std::string>::iterator use;
  };

  SharedEntry Recall(const std::string& digest);  // needs mutex_
  // Both need mutex_.
  void Remember(const std::string& digest, SharedEntry entry);
  void Forget(const std::string& digest);
  absl::StatusOr<SharedEntry> Fetch(const KernelRequest& request,
                                    KernelSource* source);
  absl::StatusOr<SharedEntry> Compile(const KernelRequest& request);
  absl::Status NotFound(const KernelRequest& request) const;
  void Log(absl::string_view line) const;

  const KernelStoreOptions options_;
  DiskCache disk_;
  std::atomic<int64_t> compile_count_ = 0;
  std::mutex mutex_;
  // All guarded by mutex_.
  std::unordered_map<std::string, Remembered> memory_;
  std::list<std::string> uses_;  // digests, most recently used first
  int64_t remembered_bytes_ = 0;
  std::unordered_map<std::string, std::shared_ptr<Flight>> flights_;
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_KERNEL_STORE_H_
