// Measures candidates one after another and keeps what it finds: compile,
// refuse what spills, compare with the reference, and only then time. What
// compiles, runs and times is given, so a test needs no GPU.
#ifndef KVFORGE_RUNTIME_TUNE_SEARCH_H_
#define KVFORGE_RUNTIME_TUNE_SEARCH_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/tune/store.h"
#include "runtime/tune/timing.h"

namespace kvforge {

struct TuneCandidate {
  std::string text;     // CandidateText
  std::string version;  // digest of the kernel's cache key
};

// One SPEC at one shape on one device.
struct TuneJob {
  std::string device;
  std::string gpu;
  std::string spec;
  std::string shape;
  std::vector<TuneCandidate> candidates;
};

struct CompiledFacts {
  int registers = 0;  // a thread
  int shared_bytes = 0;
  int spill_bytes = 0;  // stores and loads, a thread
};

// Each is called with the text of a candidate, from the thread that searches.
struct TuneRunner {
  // Compiles and loads. kUnavailable ends the search: there is no compiler.
  std::function<absl::StatusOr<CompiledFacts>(const std::string&)> prepare;
  // kDataLoss: the result is wrong, or something beside the outputs was
  // written.
  std::function<absl::Status(const std::string&)> check;
  // Null: nothing is timed and nothing stored.
  std::function<absl::StatusOr<TuneTiming>(const std::string&)> time;
  // After a failure: whether the device still works. Null: it does.
  std::function<absl::Status()> healthy;
};

struct SearchOptions {
  bool frozen = false;        // measure nothing; what the table has counts
  bool retry_failed = false;  // measure again what failed, not what is wrong
  // File that is locked while a candidate runs, so that two processes never
  // time at once; "" = none.
  std::string lock_path;
  absl::Duration lock_timeout = absl::Minutes(30);
  // Before each candidate: how many are done, and its text. May be null.
  std::function<void(size_t done, const std::string& candidate)> progress;
};

struct SearchResult {
  std::vector<TuneRecord> records;  // a candidate each, in their order
  int measured = 0;                 // by this call
  int found = 0;                    // in the table
  int missing = 0;                  // neither: frozen
  std::optional<TuneRecord> winner;
};

// `store` may be null where runner.time is. A candidate that spills, is wrong
// or fails is recorded as such and the next one is tried. An error means that
// the search could not go on; what was measured is in the store.
absl::StatusOr<SearchResult> Search(const TuneJob& job,
                                    const TuneRunner& runner, TuneStore* store,
                                    const SearchOptions& options);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_TUNE_SEARCH_H_
