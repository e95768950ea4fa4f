// The whole search with a clock of the test's own: no GPU, no compiler.
#include "runtime/tune/search.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/tune/turns.h"
#include "runtime/tune/winners.h"
#include "tests/runtime/temporary_folder.h"

namespace kvforge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TuneJob Job(const std::vector<std::string>& candidates) {
  TuneJob job = {"a GPU",
                 "sm_90",
                 "decode/bf16/d128/g4/page16/bf16",
                 "b1/h8/q1/kv1024",
                 {}};
  for (const std::string& candidate : candidates) {
    job.candidates.push_back(
        {candidate, absl::StrCat("digest of ", candidate)});
  }
  return job;
}

std::vector<std::string> Numbered(int count) {
  std::vector<std::string> candidates;
  for (int i = 0; i < count; ++i) {
    candidates.push_back(absl::StrCat("8x64/", i + 1, "/4"));
  }
  return candidates;
}

// A GPU whose times are a function of the candidate's text.
struct FakeGpu {
  std::vector<std::string> prepared, checked, timed;
  std::map<std::string, double> times;  // others: 100 us
  std::map<std::string, int> spills;
  std::map<std::string, absl::Status> check_failures, time_failures;
  absl::Status health;

  TuneRunner Runner() {
    TuneRunner runner;
    runner.prepare =
        [this](const std::string& text) -> absl::StatusOr<CompiledFacts> {
      prepared.push_back(text);
      return CompiledFacts{128, 65536, spills.count(text) ? spills[text] : 0};
    };
    runner.check = [this](const std::string& text) {
      checked.push_back(text);
      return check_failures.count(text) ? check_failures[text]
                                        : absl::OkStatus();
    };
    runner.time =
        [this](const std::string& text) -> absl::StatusOr<TuneTiming> {
      timed.push_back(text);
      if (time_failures.count(text)) return time_failures[text];
      return TuneTiming{times.count(text) ? times[text] : 100, 0.01, 9};
    };
    runner.healthy = [this] { return health; };
    return runner;
  }
};

class TuneSearch : public ::testing::Test {
 protected:
  std::string path() const { return folder_.Path("t.db"); }
  std::unique_ptr<TuneStore> Open() const {
    auto store = TuneStore::Open(path(), TuneStore::Access::kWrite);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  SearchResult Run(FakeGpu& gpu, const TuneJob& job,
                   const SearchOptions& options = {}) {
    const auto store = Open();
    absl::StatusOr<SearchResult> result =
        Search(job, gpu.Runner(), store.get(), options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : SearchResult();
  }

  const TemporaryFolder folder_;
};

TEST_F(TuneSearch, TakesTheFastestAndOnATieTheFirstText) {
  FakeGpu gpu;
  gpu.times = {{"8x64/3/4", 40}, {"8x64/2/4", 40}, {"8x64/1/4", 41}};
  const SearchResult forward =
      Run(gpu, Job({"8x64/3/4", "8x64/1/4", "8x64/2/4", "8x64/4/4"}));
  ASSERT_TRUE(forward.winner.has_value());
  EXPECT_EQ(forward.winner->key.candidate, "8x64/2/4");
  EXPECT_EQ(forward.measured, 4);
  // From the table, in another order: the same.
  FakeGpu idle;
  const SearchResult backward =
      Run(idle, Job({"8x64/4/4", "8x64/2/4", "8x64/1/4", "8x64/3/4"}));
  EXPECT_EQ(backward.winner->key.candidate, "8x64/2/4");
  EXPECT_EQ(backward.found, 4);
  EXPECT_THAT(idle.prepared, IsEmpty());
}

TEST_F(TuneSearch, ANewCandidateIsTheOnlyOneMeasured) {
  FakeGpu gpu;
  Run(gpu, Job(Numbered(5)));
  FakeGpu later;
  const SearchResult result = Run(later, Job(Numbered(6)));
  EXPECT_THAT(later.timed, ElementsAre("8x64/6/4"));
  EXPECT_EQ(result.found, 5);
  EXPECT_EQ(result.records.size(), 6u);
}

TEST_F(TuneSearch, AnotherKernelVersionIsMeasuredAnew) {
  FakeGpu gpu;
  Run(gpu, Job(Numbered(2)));
  TuneJob job = Job(Numbered(2));
  job.candidates[1].version = "another build";
  FakeGpu later;
  Run(later, job);
  EXPECT_THAT(later.timed, ElementsAre("8x64/2/4"));
}

TEST_F(TuneSearch, WhatSpillsIsRecordedAndNeitherRunNorTimed) {
  FakeGpu gpu;
  gpu.spills["8x64/1/4"] = 24;
  const SearchResult result = Run(gpu, Job(Numbered(2)));
  EXPECT_EQ(result.records[0].verdict, TuneVerdict::kSpills);
  EXPECT_EQ(result.records[0].spill_bytes, 24);
  EXPECT_THAT(gpu.checked, ElementsAre("8x64/2/4"));
  EXPECT_THAT(gpu.timed, ElementsAre("8x64/2/4"));
  const auto stored = Open()->Find(result.records[0].key);
  EXPECT_EQ((*stored)->verdict, TuneVerdict::kSpills);
}

TEST_F(TuneSearch, AWrongResultIsNeverTimedHoweverFast) {
  FakeGpu gpu;
  gpu.times["8x64/1/4"] = 0.001;
  gpu.check_failures["8x64/1/4"] = absl::DataLossError("row 3 is wrong");
  const SearchResult result = Run(gpu, Job(Numbered(2)));
  EXPECT_EQ(result.records[0].verdict, TuneVerdict::kWrong);
  EXPECT_EQ(result.records[0].note, "row 3 is wrong");
  EXPECT_THAT(gpu.timed, ElementsAre("8x64/2/4"));
  EXPECT_EQ(result.winner->key.candidate, "8x64/2/4");
}

TEST_F(TuneSearch, AFailureIsRecordedAndTriedAgainOnlyIfAsked) {
  FakeGpu gpu;
  gpu.time_failures["8x64/1/4"] = absl::InternalError("launch failed");
  const SearchResult result = Run(gpu, Job(Numbered(2)));
  EXPECT_EQ(result.records[0].verdict, TuneVerdict::kFailed);
  EXPECT_EQ(result.records[0].note, "launch failed");
  FakeGpu later;
  Run(later, Job(Numbered(2)));
  EXPECT_THAT(later.prepared, IsEmpty());
  SearchOptions retry;
  retry.retry_failed = true;
  const SearchResult again = Run(later, Job(Numbered(2)), retry);
  EXPECT_THAT(later.timed, ElementsAre("8x64/1/4"));
  EXPECT_EQ(again.records[0].verdict, TuneVerdict::kTimed);
}

TEST_F(TuneSearch, ALostDeviceEndsTheSearchAndTheNextRunDoesTheRest) {
  FakeGpu gpu;
  gpu.time_failures["8x64/2/4"] = absl::InternalError("illegal address");
  gpu.health = absl::InternalError("context lost");
  {
    const auto store = Open();
    const auto result = Search(Job(Numbered(4)), gpu.Runner(), store.get(), {});
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(std::string(result.status().message()),
                HasSubstr("run again for the rest"));
  }
  FakeGpu later;
  const SearchResult result = Run(later, Job(Numbered(4)));
  EXPECT_THAT(later.timed, ElementsAre("8x64/3/4", "8x64/4/4"));
  EXPECT_EQ(result.records[1].verdict, TuneVerdict::kFailed);
}

TEST_F(TuneSearch, WithoutACompilerNothingIsRecorded) {
  FakeGpu gpu;
  TuneRunner runner = gpu.Runner();
  runner.prepare = [](const std::string&) -> absl::StatusOr<CompiledFacts> {
    return absl::UnavailableError("no NVRTC");
  };
  const auto store = Open();
  EXPECT_TRUE(absl::IsUnavailable(
      Search(Job(Numbered(2)), runner, store.get(), {}).status()));
  EXPECT_THAT(*store->Records("", "", ""), IsEmpty());
}

TEST_F(TuneSearch, FrozenMeasuresNothing) {
  FakeGpu gpu;
  Run(gpu, Job(Numbered(2)));
  SearchOptions frozen;
  frozen.frozen = true;
  frozen.retry_failed = true;
  FakeGpu idle;
  const SearchResult result = Run(idle, Job(Numbered(5)), frozen);
  EXPECT_THAT(idle.prepared, IsEmpty());
  EXPECT_EQ(result.found, 2);
  EXPECT_EQ(result.missing, 3);
  EXPECT_TRUE(result.winner.has_value());
  TuneJob other = Job(Numbered(2));
  other.device = "another GPU";
  EXPECT_FALSE(Run(idle, other, frozen).winner.has_value());
}

TEST_F(TuneSearch, OnTheCpuNothingIsStored) {
  FakeGpu gpu;
  TuneRunner runner = gpu.Runner();
  runner.time = nullptr;
  const auto store = Open();
  const auto result = Search(Job(Numbered(2)), runner, store.get(), {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->records[0].verdict, TuneVerdict::kChecked);
  EXPECT_FALSE(result->winner.has_value());
  EXPECT_THAT(*store->Records("", "", ""), IsEmpty());
}

TEST_F(TuneSearch, KilledHalfWayTheNextRunDoesOnlyTheRest) {
  constexpr int kBeforeTheEnd = 3;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    FakeGpu gpu;
    TuneRunner runner = gpu.Runner();
    runner.time = [&](const std::string&) -> absl::StatusOr<TuneTiming> {
      gpu.timed.push_back("");
      if (gpu.timed.size() > kBeforeTheEnd) raise(SIGKILL);
      return TuneTiming{100, 0.01, 9};
    };
    const auto store = Open();
    (void)Search(Job(Numbered(8)), runner, store.get(),
                 {.lock_path = folder_.Path("lock")});
    _exit(1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  ASSERT_TRUE(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
  FakeGpu gpu;
  // The lock of the dead process does not hold.
  const SearchResult result =
      Run(gpu, Job(Numbered(8)), {.lock_path = folder_.Path("lock")});
  EXPECT_EQ(result.found, kBeforeTheEnd);
  EXPECT_EQ(gpu.timed.size(), size_t{8 - kBeforeTheEnd});
  EXPECT_EQ(gpu.timed.front(), "8x64/4/4");
}

TEST_F(TuneSearch, TwoProcessesAtOnceShareTheWorkAndNeverTimeTogether) {
  constexpr int kCandidates = 30;
  const std::string busy = folder_.Path("busy");
  const bool all = RunInProcesses(2, [&](int process) {
    FakeGpu gpu;
    TuneRunner runner = gpu.Runner();
    runner.time = [&](const std::string&) -> absl::StatusOr<TuneTiming> {
      gpu.timed.push_back("");
      // Only one may be here: the second finds the first one's file.
      if (mkdir(busy.c_str(), 0700) != 0) return absl::AbortedError("together");
      usleep(1000);
      rmdir(busy.c_str());
      return TuneTiming{100, 0.01, 9};
    };
    const auto store = TuneStore::Open(path(), TuneStore::Access::kWrite);
    if (!store.ok()) return false;
    const auto result = Search(Job(Numbered(kCandidates)), runner, store->get(),
                               {.lock_path = folder_.Path("lock")});
    if (!result.ok()) return false;
    std::string count = absl::StrCat(gpu.timed.size());
    return WriteFileAtomically(folder_.Path(absl::StrCat("n", process)), count)
               .ok() &&
           result->records.size() == kCandidates;
  });
  EXPECT_TRUE(all);
  const auto records = *Open()->Records("", "", "");
  EXPECT_EQ(records.size(), size_t{kCandidates});
  for (const TuneRecord& record : records) {
    EXPECT_EQ(record.verdict, TuneVerdict::kTimed) << record.note;
  }
  const int timed = std::stoi(*ReadFile(folder_.Path("n0"))) +
                    std::stoi(*ReadFile(folder_.Path("n1")));
  EXPECT_EQ(timed, kCandidates);
}

TEST_F(TuneSearch, WinnerAndSelectedAreTimedInTurns) {
  FakeGpu gpu;
  gpu.times = {{"a", 10}, {"b", 12}};
  const auto times = TimeInTurns(gpu.Runner(), "a", "b", 3, {});
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_THAT(gpu.timed, ElementsAre("a", "b", "a", "b", "a", "b"));
  EXPECT_EQ(gpu.prepared, gpu.timed);
  EXPECT_THAT(times->winner_us, ElementsAre(10, 10, 10));
  EXPECT_THAT(times->selected_us, ElementsAre(12, 12, 12));
  gpu.time_failures["b"] = absl::InternalError("lost");
  EXPECT_THAT(TimeInTurns(gpu.Runner(), "a", "b", 3, {}).status().ToString(),
              HasSubstr("lost"));
}

TEST(TuneTurns, OnlyRoundsThatDoNotOverlapDecide) {
  EXPECT_EQ(Compare({{10, 11}, {11.5, 12}}), TurnVerdict::kFaster);
  EXPECT_EQ(Compare({{10, 11.5}, {11.5, 12}}), TurnVerdict::kEqual);
  EXPECT_EQ(Compare({{10, 13}, {11, 12}}), TurnVerdict::kEqual);
  EXPECT_EQ(Compare({{13, 14}, {11, 12}}), TurnVerdict::kSlower);
  EXPECT_EQ(MedianRound({3, 1, 9}), 3);
}

}  // namespace
}  // namespace kvforge
