#include "runtime/kernel_store.h"

#include <condition_variable>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"

namespace kvforge {

struct KernelStore::Flight {
  std::condition_variable landed_cv;
  // Guarded by the store's mutex_.
  bool landed = false;
  absl::StatusOr<SharedEntry> result = absl::InternalError(
      "kernel store: the thread that fetched this kernel ended with an "
      "exception, such as of memory that ran out; ask for it again");
};

KernelStore::KernelStore(KernelStoreOptions options)
    : options_(std::move(options)), disk_(options_.cache) {}

void KernelStore::Log(absl::string_view line) const {
  if (options_.log) options_.log(line);
}

KernelStore::SharedEntry KernelStore::Recall(const std::string& digest) {
  const auto it = memory_.find(digest);
  if (it == memory_.end()) return nullptr;
  uses_.splice(uses_.begin(), uses_, it->second.use);
  return it->second.entry;
}

void KernelStore::Remember(const std::string& digest, SharedEntry entry) {
  Forget(digest);
  remembered_bytes_ += static_cast<int64_t>(entry->payload.size());
  uses_.push_front(digest);
  memory_[digest] = {std::move(entry), uses_.begin()};
  while (remembered_bytes_ > options_.memory_bytes && uses_.size() > 1) {
    Forget(std::string(uses_.back()));
  }
}

void KernelStore::Forget(const std::string& digest) {
  const auto it = memory_.find(digest);
  if (it == memory_.end()) return;
  remembered_bytes_ -= static_cast<int64_t>(it->second.entry->payload.size());
  uses_.erase(it->second.use);
  memory_.erase(it);
}

absl::StatusOr<KernelStore::SharedEntry> KernelStore::Get(
    const KernelRequest& request, KernelSource* source) {
  KernelSource unused;
  if (source == nullptr) source = &unused;
  const std::string digest = KeyDigest(request.key);
  std::shared_ptr<Flight> flight;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (SharedEntry entry = Recall(digest)) {
      *source = KernelSource::kMemory;
      return entry;
    }
    std::shared_ptr<Flight>& slot = flights_[digest];
    if (slot != nullptr) {
      flight = slot;
      flight->landed_cv.wait(lock, [&flight] { return flight->landed; });
      *source = KernelSource::kWaited;
      return flight->result;
    }
    flight = slot = std::make_shared<Flight>();
  }
  // Those that wait go on although this thread leaves by an exception.
  const auto land = absl::MakeCleanup([&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    flight->landed = true;
    flights_.erase(digest);
    flight->landed_cv.notify_all();
  });
  absl::StatusOr<SharedEntry> result = Fetch(request, source);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (result.ok()) Remember(digest, *result);
  flight->result = result;
  return result;
}

absl::StatusOr<KernelStore::SharedEntry> KernelStore::Find(
    const KernelRequest& request, KernelSource* source) {
  KernelSource unused;
  if (source == nullptr) source = &unused;
  const std::string digest = KeyDigest(request.key);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (SharedEntry entry = Recall(digest)) {
      *source = KernelSource::kMemory;
      return entry;
    }
  }
  std::optional<Entry> found = disk_.Lookup(request.key);
  if (!found) return NotFound(request);
  *source = KernelSource::kDisk;
  SharedEntry entry = std::make_shared<const Entry>(*std::move(found));
  const std::lock_guard<std::mutex> lock(mutex_);
  Remember(digest, entry);
  return entry;
}

absl::StatusOr<KernelStore::SharedEntry> KernelStore::Fetch(
    const KernelRequest& request, KernelSource* source) {
  // Nothing can take the place of an entry that strict mode would ignore.
  const bool use_disk = strict() || !options_.recompile;
  *source = KernelSource::kDisk;
  if (use_disk) {
    if (std::optional<Entry> found = disk_.Lookup(request.key)) {
      return std::make_shared<const Entry>(*std::move(found));
    }
  }
  if (strict()) return NotFound(request);
  const absl::StatusOr<FileLock> lock =
      disk_.Lock(request.key, options_.lock_timeout);
  if (!lock.ok() && !disk_.roots().empty()) {
    Log(absl::StrCat("compiling ", request.key.spec, " for ", request.key.arch,
                     " without a lock: ", lock.status().message()));
  }
  // Another process may have published while this one waited.
  if (use_disk) {
    if (std::optional<Entry> found = disk_.Lookup(request.key)) {
      return std::make_shared<const Entry>(*std::move(found));
    }
  }
  *source = KernelSource::kCompiled;
  return Compile(request);
}

absl::StatusOr<KernelStore::SharedEntry> KernelStore::Compile(
    const KernelRequest& request) {
  const absl::Time start = absl::Now();
  compile_count_.fetch_add(1);
  ASSIGN_OR_RETURN(Entry compiled, options_.compile(request));
  compiled.key = request.key;
  const SharedEntry entry = std::make_shared<const Entry>(std::move(compiled));
  if (options_.on_compile) {
    options_.on_compile(
        {request, *entry, absl::ToDoubleMilliseconds(absl::Now() - start)});
  }
  if (const absl::Status published = disk_.Publish(*entry); !published.ok()) {
    Log(absl::StrCat("kernel ", request.key.spec, " for ", request.key.arch,
                     " stays in memory only: ", published.message()));
  }
  return entry;
}

void KernelStore::Discard(const KeyFields& key, absl::string_view reason) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Forget(KeyDigest(key));
  }
  disk_.Quarantine(key, reason);
}

absl::Status KernelStore::NotFound(const KernelRequest& request) const {
  std::vector<std::string> paths;
  for (const CacheRoot& root : disk_.roots()) paths.push_back(root.path);
  return absl::NotFoundError(absl::StrCat(
      "no compiled kernel for ", KeyText(request.key),
      strict() ? ", and this process may not compile (strict mode)"
               : ", which has not been prepared",
      "; searched: memory, ",
      paths.empty() ? std::string("no cache folder")
                    : absl::StrJoin(paths, ", "),
      "; run `kvforge prime ", request.key.spec, " --gpus ",
      request.target == "host" ? "host-" : "", request.gpu, " --cache ",
      paths.empty() ? std::string("DIR") : paths.front(),
      paths.empty() ? "` and set KVFORGE_CACHE_DIR to that folder"
                    : "` where a compiler is at hand"));
}

}  // namespace kvforge
