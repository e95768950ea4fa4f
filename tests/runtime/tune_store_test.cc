// The tuning table between processes, and what dies while it writes.
#include "runtime/tune/store.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/runtime/temporary_folder.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

TuneRecord Record(const std::string& candidate, double median_us) {
  TuneRecord record;
  record.key = {"a GPU", "decode/bf16/d128/g4/page16/bf16", "b1/h8/q1/kv1024",
                candidate, "digest"};
  record.gpu = "sm_90";
  record.verdict = TuneVerdict::kTimed;
  record.timing = {median_us, 0.01, 9};
  record.registers = 128;
  record.shared_bytes = 65536;
  record.measured_at = "2025-01-31T12:00:00Z";
  return record;
}

std::unique_ptr<TuneStore> Open(const std::string& path) {
  absl::StatusOr<std::unique_ptr<TuneStore>> store =
      TuneStore::Open(path, TuneStore::Access::kWrite);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

std::vector<TuneRecord> All(const std::string& path) {
  const auto store = TuneStore::Open(path, TuneStore::Access::kRead);
  EXPECT_TRUE(store.ok()) << store.status();
  if (!store.ok()) return {};
  const auto records = (*store)->Records("", "", "");
  EXPECT_TRUE(records.ok()) << records.status();
  return records.ok() ? *records : std::vector<TuneRecord>();
}

TEST(TuneStore, RecordsComeBackWhole) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("t.db");
  const auto store = Open(path);
  const TuneRecord timed = Record("8x64/4/4", 12.5);
  TuneRecord wrong = Record("8x64/3/4 grid=264x4", 0);
  wrong.verdict = TuneVerdict::kWrong;
  wrong.timing = {};
  wrong.note = "row 3: 'quoted' \"text\"; --";
  ASSERT_TRUE(store->Put(timed).ok());
  ASSERT_TRUE(store->Put(wrong).ok());
  EXPECT_EQ(*store->Find(timed.key), timed);
  EXPECT_EQ(*store->Find(wrong.key), wrong);
  TuneRecord again = timed;
  again.timing.median_us = 11;
  ASSERT_TRUE(store->Put(again).ok());
  EXPECT_EQ(*store->Find(timed.key), again);
  TuneKey other = timed.key;
  other.version = "another build";
  EXPECT_EQ(*store->Find(other), std::nullopt);
  EXPECT_EQ(All(path).size(), 2u);
}

TEST(TuneStore, SeveralDevicesSpecsAndShapesInOneFile) {
  const TemporaryFolder folder;
  const auto store = Open(folder.Path("t.db"));
  int count = 0;
  for (const char* device : {"one", "two"}) {
    for (const char* spec : {"s", "t"}) {
      for (const char* shape : {"x", "y", "z"}) {
        TuneRecord record = Record("8x64/4/4", ++count);
        record.key.device = device;
        record.key.spec = spec;
        record.key.shape = shape;
        ASSERT_TRUE(store->Put(record).ok());
      }
    }
  }
  EXPECT_EQ(store->Records("", "", "")->size(), 12u);
  EXPECT_EQ(store->Records("one", "", "")->size(), 6u);
  EXPECT_EQ(store->Records("one", "t", "")->size(), 3u);
  const auto one = store->Records("two", "s", "y");
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ(one->front().timing.median_us, 8);
}

TEST(TuneStore, TimesOfTheCpuAreNotStored) {
  const TemporaryFolder folder;
  const auto store = Open(folder.Path("t.db"));
  TuneRecord checked = Record("8x64/4/4", 1);
  checked.verdict = TuneVerdict::kChecked;
  const absl::Status status = store->Put(checked);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tune on a GPU"));
}

TEST(TuneStore, EightProcessesThatWriteAtOnceLoseNothing) {
  constexpr int kProcesses = 8;
  constexpr int kRecords = 25;
  const TemporaryFolder folder;
  const std::string path = folder.Path("t.db");
  // The file does not exist yet: they also make the table at once.
  const bool all = RunInProcesses(kProcesses, [&](int process) {
    const auto store = TuneStore::Open(path, TuneStore::Access::kWrite);
    if (!store.ok()) return false;
    for (int i = 0; i < kRecords; ++i) {
      const std::string candidate = absl::StrCat(process, "x", i);
      if (!(*store)->Put(Record(candidate, i)).ok()) return false;
    }
    return true;
  });
  EXPECT_TRUE(all);
  EXPECT_EQ(All(path).size(), size_t{kProcesses * kRecords});
}

TEST(TuneStore, ThreadsOfOneStoreLoseNothing) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("t.db");
  const auto store = Open(path);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        EXPECT_TRUE(store->Put(Record(absl::StrCat(t, "x", i), i)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(All(path).size(), 40u);
}

TEST(TuneStore, ProcessKilledWhileItWritesLeavesWholeRecords) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("t.db");
  ASSERT_NE(Open(path), nullptr);
  for (int round = 0; round < 10; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto store = TuneStore::Open(path, TuneStore::Access::kWrite);
      for (int i = 0; store.ok(); ++i) {
        (void)(*store)->Put(Record(absl::StrCat(round, "x", i), i));
      }
      _exit(1);
    }
    usleep(3000 + 1700 * round);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFSIGNALED(state));
    // Usable: what is there is whole, and more goes in.
    const auto store = Open(path);
    ASSERT_NE(store, nullptr);
    const TuneRecord more = Record(absl::StrCat("after ", round), 1);
    ASSERT_TRUE(store->Put(more).ok());
    EXPECT_EQ(*store->Find(more.key), more);
  }
  for (const TuneRecord& record : All(path)) {
    EXPECT_EQ(record, Record(record.key.candidate, record.timing.median_us));
  }
}

TEST(TuneStore, OtherFilesAreRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(TuneStore::Open(folder.Path("none"), TuneStore::Access::kRead)
                .status()
                .code(),
            absl::StatusCode::kNotFound);
  const std::string text = folder.Path("text");
  std::ofstream(text) << std::string(4096, 'x');
  const absl::Status status =
      TuneStore::Open(text, TuneStore::Access::kWrite).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("name another file"));
}

}  // namespace
}  // namespace kvforge
