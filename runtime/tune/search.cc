#include "runtime/tune/search.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/cache/file_lock.h"

namespace kvforge {
namespace {

TuneKey KeyOf(const TuneJob& job, const TuneCandidate& candidate) {
  return {job.device, job.spec, job.shape, candidate.text, candidate.version};
}

void Conclude(TuneRecord& record, TuneVerdict verdict,
              absl::string_view note = "") {
  record.verdict = verdict;
  record.note = std::string(note);
}

// Fills in everything behind the key. An error ends the search.
absl::Status Measure(const TuneRunner& runner, TuneRecord& record) {
  const std::string& candidate = record.key.candidate;
  const absl::StatusOr<CompiledFacts> facts = runner.prepare(candidate);
  if (absl::IsUnavailable(facts.status())) return facts.status();
  if (!facts.ok()) {
    Conclude(record, TuneVerdict::kFailed, facts.status().message());
    return absl::OkStatus();
  }
  record.registers = facts->registers;
  record.shared_bytes = facts->shared_bytes;
  record.spill_bytes = facts->spill_bytes;
  if (facts->spill_bytes > 0) {
    Conclude(record, TuneVerdict::kSpills,
             absl::StrCat(facts->spill_bytes, " bytes a thread"));
    return absl::OkStatus();
  }
  if (const absl::Status right = runner.check(candidate); !right.ok()) {
    Conclude(
        record,
        absl::IsDataLoss(right) ? TuneVerdict::kWrong : TuneVerdict::kFailed,
        right.message());
    return absl::OkStatus();
  }
  if (!runner.time) {
    Conclude(record, TuneVerdict::kChecked);
    return absl::OkStatus();
  }
  const absl::StatusOr<TuneTiming> timing = runner.time(candidate);
  if (!timing.ok()) {
    Conclude(record, TuneVerdict::kFailed, timing.status().message());
    return absl::OkStatus();
  }
  record.timing = *timing;
  Conclude(record, TuneVerdict::kTimed);
  return absl::OkStatus();
}

class Searcher {
 public:
  Searcher(const TuneJob& job, const TuneRunner& runner, TuneStore* store,
           const SearchOptions& options)
      : job_(job), runner_(runner), store_(store), options_(options) {}

  absl::StatusOr<SearchResult> Run() {
    for (const TuneCandidate& candidate : job_.candidates) {
      if (options_.progress) options_.progress(done_, candidate.text);
      RETURN_IF_ERROR(Visit(candidate));
      ++done_;
    }
    result_.winner = ChooseFastest(result_.records);
    return std::move(result_);
  }

 private:
  // The table's record that stands for measuring; none if there is none.
  absl::StatusOr<std::optional<TuneRecord>> Known(const TuneKey& key) {
    if (store_ == nullptr) return std::nullopt;
    ASSIGN_OR_RETURN(std::optional<TuneRecord> record, store_->Find(key));
    if (record && options_.retry_failed && !options_.frozen &&
        record->verdict == TuneVerdict::kFailed) {
      return std::nullopt;
    }
    return record;
  }

  absl::StatusOr<bool> TakeKnown(const TuneKey& key) {
    ASSIGN_OR_RETURN(std::optional<TuneRecord> known, Known(key));
    if (!known) return false;
    ++result_.found;
    result_.records.push_back(*std::move(known));
    return true;
  }

  absl::Status Visit(const TuneCandidate& candidate) {
    TuneRecord record;
    record.key = KeyOf(job_, candidate);
    record.gpu = job_.gpu;
    ASSIGN_OR_RETURN(bool known, TakeKnown(record.key));
    if (known) return absl::OkStatus();
    if (options_.frozen) {
      ++result_.missing;
      return absl::OkStatus();
    }
    std::optional<FileLock> lock;
    if (!options_.lock_path.empty()) {
      ASSIGN_OR_RETURN(FileLock held, FileLock::Acquire(options_.lock_path,
                                                        options_.lock_timeout));
      lock.emplace(std::move(held));
      // Another process may have measured it while this one waited.
      ASSIGN_OR_RETURN(known, TakeKnown(record.key));
      if (known) return absl::OkStatus();
    }
    RETURN_IF_ERROR(Measure(runner_, record));
    ++result_.measured;
    record.measured_at = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(),
                                          absl::UTCTimeZone());
    // In the table before the device is looked at: a candidate that takes it
    // down is not tried again by the next run.
    if (store_ != nullptr && record.verdict != TuneVerdict::kChecked) {
      RETURN_IF_ERROR(store_->Put(record));
    }
    const bool failed = record.verdict == TuneVerdict::kFailed;
    result_.records.push_back(std::move(record));
    if (!failed || !runner_.healthy) return absl::OkStatus();
    const absl::Status healthy = runner_.healthy();
    if (healthy.ok()) return absl::OkStatus();
    return absl::Status(
        healthy.code(),
        absl::StrCat("tune: the device is lost behind ", candidate.text, " of ",
                     job_.spec, " (", healthy.message(),
                     "); the candidate is recorded as failed; run again for "
                     "the rest"));
  }

  const TuneJob& job_;
  const TuneRunner& runner_;
  TuneStore* const store_;
  const SearchOptions& options_;
  SearchResult result_;
  size_t done_ = 0;
};

}  // namespace

absl::StatusOr<SearchResult> Search(const TuneJob& job,
                                    const TuneRunner& runner, TuneStore* store,
                                    const SearchOptions& options) {
  if (store == nullptr && runner.time) {
    return absl::InvalidArgumentError(
        "tune: timings without a table to keep them in; check only, or name a "
        "table with --db FILE");
  }
  // On the CPU nothing is stored, and a table of a GPU says nothing.
  return Searcher(job, runner, runner.time || options.frozen ? store : nullptr,
                  options)
      .Run();
}

}  // namespace kvforge
