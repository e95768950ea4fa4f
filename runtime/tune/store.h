// Every candidate's timing, in a SQLite file that many processes may write at
// once. For the command only: an engine reads the winners that are exported
// from it (winners.h), so libkvforge needs no SQLite.
//
// Rollback journal and full synchronisation: a record is in the file once Put
// returns, a process that dies at any point leaves whole records only, and the
// file works where shared memory does not, as on network file systems.
#ifndef KVFORGE_RUNTIME_TUNE_STORE_H_
#define KVFORGE_RUNTIME_TUNE_STORE_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tune/timing.h"

struct sqlite3;

namespace kvforge {

// Thread safe.
class TuneStore {
 public:
  enum class Access { kRead, kWrite };

  // kWrite makes the file where there is none. kNotFound without a file to
  // read, kInvalidArgument for a file that is no table of ours,
  // kFailedPrecondition for one of another version.
  static absl::StatusOr<std::unique_ptr<TuneStore>> Open(
      const std::string& path, Access access);
  ~TuneStore();
  TuneStore(const TuneStore&) = delete;
  TuneStore& operator=(const TuneStore&) = delete;

  // Adds the record, or replaces the one with its key. Waits up to half a
  // minute for other processes. kInvalidArgument for a verdict that is not
  // stored.
  absl::Status Put(const TuneRecord& record);

  absl::StatusOr<std::optional<TuneRecord>> Find(const TuneKey& key);
  // Those of a device, SPEC and shape, in order of their keys; an empty text
  // stands for any.
  absl::StatusOr<std::vector<TuneRecord>> Records(absl::string_view device,
                                                  absl::string_view spec,
                                                  absl::string_view shape);

 private:
  TuneStore(std::string path, sqlite3* database)
      : path_(std::move(path)), database_(database) {}
  absl::Status Execute(const char* statement);
  absl::Status MakeTable();
  absl::Status CheckTable();
  // What SQLite says of its last call.
  absl::Status Error(absl::string_view what) const;
  absl::StatusOr<std::vector<TuneRecord>> Select(
      absl::string_view condition, const std::vector<std::string>& values);

  const std::string path_;
  std::mutex mutex_;
  sqlite3* const database_;  // owned; guarded by mutex_
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_TUNE_STORE_H_
