#include "runtime/kernel_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/file.h"
#include "tests/runtime/sample_entry.h"
#include "tests/runtime/temporary_folder.h"

namespace kvforge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kKeys = 8;  // compiled in parallel

KernelRequest Request(int page_size = 16) {
  return {SampleKey(page_size), "sm_90", "cuda"};
}

absl::StatusOr<Entry> CompileSample(const KernelRequest& request) {
  Entry entry = SampleEntry();
  entry.key = {};  // the store's to set
  entry.payload = request.key.spec;
  return entry;
}

class KernelStoreTest : public ::testing::Test {
 protected:
  KernelStoreOptions Options(CompileFunction compile) {
    KernelStoreOptions options;
    options.cache.roots = {{root_}};
    options.compile = std::move(compile);
    options.log = [this](absl::string_view line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      log_.emplace_back(line);
    };
    return options;
  }

  TemporaryFolder folder_;
  std::string root_ = folder_.Path("root");
  std::mutex mutex_;
  std::vector<std::string> log_;
};

TEST_F(KernelStoreTest, CompilesOnceThenMemoryThenDisk) {
  int reports = 0;
  KernelStoreOptions options = Options(CompileSample);
  options.on_compile = [&reports](const CompileReport& report) {
    EXPECT_EQ(report.entry.key, report.request.key);
    EXPECT_GE(report.milliseconds, 0);
    ++reports;
  };
  KernelSource source;
  {
    KernelStore store(options);
    const auto entry = store.Get(Request(), &source);
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ((*entry)->key, SampleKey());
    EXPECT_EQ((*entry)->payload, SampleKey().spec);
    EXPECT_EQ(source, KernelSource::kCompiled);
    ASSERT_TRUE(store.Get(Request(), &source).ok());
    EXPECT_EQ(source, KernelSource::kMemory);
    EXPECT_EQ(store.compile_count(), 1);
    EXPECT_EQ(reports, 1);
  }
  KernelStore store(options);
  ASSERT_TRUE(store.Get(Request(), &source).ok());
  EXPECT_EQ(source, KernelSource::kDisk);
  EXPECT_EQ(store.compile_count(), 0);
  EXPECT_EQ(reports, 1);
  EXPECT_THAT(log_, IsEmpty());
}

// Without a folder, whose lock would do the same.
TEST_F(KernelStoreTest, ThirtyTwoThreadsAndOneKeyMakeOneCompile) {
  KernelStoreOptions options = Options([](const KernelRequest& request) {
    absl::SleepFor(absl::Milliseconds(50));
    return CompileSample(request);
  });
  options.cache.roots.clear();
  KernelStore store(options);
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 32; ++i) {
    threads.emplace_back([&store, &good] {
      const auto entry = store.Get(Request());
      if (entry.ok() && (*entry)->payload == SampleKey().spec) ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 32);
  EXPECT_EQ(store.compile_count(), 1);
}

// The compile ends once the other thread waits for it, or may: it can only be
// asked for, not seen.
TEST_F(KernelStoreTest, ThoseThatWaitForACompileDidNotFindItOnDisk) {
  std::atomic<bool> compiling = false;
  KernelStore store(Options([&](const KernelRequest& request) {
    compiling = true;
    absl::SleepFor(absl::Milliseconds(300));
    return CompileSample(request);
  }));
  KernelSource first = KernelSource::kMemory;
  std::thread compiler([&] { EXPECT_TRUE(store.Get(Request(), &first).ok()); });
  while (!compiling) absl::SleepFor(absl::Milliseconds(1));
  KernelSource second = KernelSource::kMemory;
  EXPECT_TRUE(store.Get(Request(), &second).ok());
  compiler.join();
  EXPECT_EQ(first, KernelSource::kCompiled);
  EXPECT_EQ(second, KernelSource::kWaited);
}

// Every compile waits until all eight have begun.
TEST_F(KernelStoreTest, DistinctKeysCompileInParallel) {
  std::mutex mutex;
  std::condition_variable all_begun;
  int begun = 0;
  KernelStore store(
      Options([&](const KernelRequest& request) -> absl::StatusOr<Entry> {
        std::unique_lock<std::mutex> lock(mutex);
        if (++begun == kKeys) all_begun.notify_all();
        if (!all_begun.wait_for(lock, std::chrono::seconds(30),
                                [&begun] { return begun == kKeys; })) {
          return absl::DeadlineExceededError("compiles wait for each other");
        }
        return CompileSample(request);
      }));
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kKeys; ++i) {
    threads.emplace_back([&store, &good, i] {
      if (store.Get(Request(i)).ok()) ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, kKeys);
}

TEST_F(KernelStoreTest, AFailedCompileIsPassedOnAndTriedAgain) {
  std::atomic<int> calls = 0;
  KernelStore store(
      Options([&calls](const KernelRequest& request) -> absl::StatusOr<Entry> {
        if (calls++ == 0) return absl::InternalError("rejected; log: ...");
        return CompileSample(request);
      }));
  const auto failed = store.Get(Request());
  EXPECT_TRUE(absl::IsInternal(failed.status()));
  EXPECT_EQ(failed.status().message(), "rejected; log: ...");
  EXPECT_TRUE(store.Get(Request()).ok());
  EXPECT_EQ(store.compile_count(), 2);
}

// What a compile runs into may be no status: an engine's log function, say.
TEST_F(KernelStoreTest, AnExceptionLeavesNobodyWaiting) {
  std::atomic<int> calls = 0;
  KernelStore store(
      Options([&calls](const KernelRequest& request) -> absl::StatusOr<Entry> {
        if (calls++ == 0) {
          absl::SleepFor(absl::Milliseconds(100));  // others begin to wait
          throw std::bad_alloc();
        }
        return CompileSample(request);
      }));
  std::atomic<int> thrown = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&store, &thrown] {
      try {
        const auto entry = store.Get(Request());
        if (entry.ok()) return;
        EXPECT_THAT(std::string(entry.status().message()),
                    HasSubstr("ended with an exception"));
      } catch (const std::bad_alloc&) {
        ++thrown;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(thrown, 1);
  EXPECT_TRUE(store.Get(Request()).ok());
}

TEST_F(KernelStoreTest, StrictModeFindsPrimedKernelsAndNamesWhatIsMissing) {
  ASSERT_TRUE(KernelStore(Options(CompileSample)).Get(Request()).ok());
  KernelStoreOptions options = Options(nullptr);
  options.cache.roots.push_back({folder_.Path("second")});
  options.recompile = true;  // has no say without a compiler
  KernelStore store(options);
  EXPECT_TRUE(store.strict());
  EXPECT_TRUE(store.Get(Request()).ok());
  const auto missing = store.Get(Request(32));
  ASSERT_TRUE(absl::IsNotFound(missing.status())) << missing.status();
  EXPECT_THAT(
      std::string(missing.status().message()),
      AllOf(HasSubstr("spec=decode/e4m3_row/d128/g4/page32/bf16"),
            HasSubstr("tile=8x64/3/4"), HasSubstr("arch=sm_90a"),
            HasSubstr("build_id=0123456789abcdef"), HasSubstr(root_),
            HasSubstr(folder_.Path("second")), HasSubstr("kvforge prime")));
  EXPECT_EQ(store.compile_count(), 0);
}

TEST_F(KernelStoreTest, FindNeverCompiles) {
  KernelStore store(Options(CompileSample));
  EXPECT_TRUE(absl::IsNotFound(store.Find(Request()).status()));
  EXPECT_EQ(store.compile_count(), 0);
  ASSERT_TRUE(store.Get(Request()).ok());
  EXPECT_TRUE(store.Find(Request()).ok());
  KernelStore second(Options(CompileSample));
  KernelSource source;
  EXPECT_TRUE(second.Find(Request(), &source).ok());
  EXPECT_EQ(source, KernelSource::kDisk);
}

TEST_F(KernelStoreTest, RecompileIgnoresTheDiskAndWritesIt) {
  ASSERT_TRUE(KernelStore(Options(CompileSample)).Get(Request()).ok());
  KernelStoreOptions options =
      Options([](const KernelRequest&) -> absl::StatusOr<Entry> {
        Entry entry;
        entry.payload = "new";
        return entry;
      });
  options.recompile = true;
  KernelStore store(options);
  EXPECT_EQ((*store.Get(Request()))->payload, "new");
  EXPECT_EQ((*store.Get(Request()))->payload, "new");
  EXPECT_EQ(store.compile_count(), 1);
  EXPECT_EQ((*KernelStore(Options(nullptr)).Get(Request()))->payload, "new");
}

TEST_F(KernelStoreTest, ADiscardedEntryIsCompiledAgain) {
  KernelStore store(Options(CompileSample));
  ASSERT_TRUE(store.Get(Request()).ok());
  store.Discard(SampleKey(), "does not load");
  KernelSource source;
  ASSERT_TRUE(store.Get(Request(), &source).ok());
  EXPECT_EQ(source, KernelSource::kCompiled);
  EXPECT_EQ(store.compile_count(), 2);
}

TEST_F(KernelStoreTest, DamageOnDiskIsCompiledAgain) {
  ASSERT_TRUE(KernelStore(Options(CompileSample)).Get(Request()).ok());
  const std::string path = DiskCache::EntryPath(root_, SampleKey());
  ASSERT_TRUE(WriteFileAtomically(path, "damaged").ok());
  KernelStore store(Options(CompileSample));
  ASSERT_TRUE(store.Get(Request()).ok());
  EXPECT_EQ(store.compile_count(), 1);
  EXPECT_TRUE(KernelStore(Options(nullptr)).Get(Request()).ok());
}

TEST_F(KernelStoreTest, AnUnwritableCacheStillGivesTheKernel) {
  ASSERT_TRUE(WriteFileAtomically(folder_.Path("file"), "").ok());
  KernelStoreOptions options = Options(CompileSample);
  options.cache.roots = {{folder_.Path("file/root")}};
  KernelStore store(options);
  EXPECT_TRUE(store.Get(Request()).ok());
  EXPECT_TRUE(store.Get(Request()).ok());
  EXPECT_EQ(store.compile_count(), 1);
  EXPECT_THAT(log_, ElementsAre(HasSubstr("without a lock"),
                                HasSubstr("stays in memory only")));
}

TEST_F(KernelStoreTest, MemoryIsBounded) {
  KernelStoreOptions options = Options(CompileSample);
  options.cache.roots.clear();
  options.memory_bytes = 2 * static_cast<int64_t>(SampleKey(10).spec.size());
  KernelStore store(options);
  for (const int page_size : {10, 11, 10, 12}) {
    ASSERT_TRUE(store.Get(Request(page_size)).ok());
  }
  EXPECT_EQ(store.compile_count(), 3);
  ASSERT_TRUE(store.Get(Request(10)).ok());  // used after 11
  EXPECT_EQ(store.compile_count(), 3);
  ASSERT_TRUE(store.Get(Request(11)).ok());  // had to leave
  EXPECT_EQ(store.compile_count(), 4);
}

TEST_F(KernelStoreTest, AHeldLockDelaysACompileForABoundedTimeOnly) {
  KernelStoreOptions options = Options(CompileSample);
  options.lock_timeout = absl::Milliseconds(30);
  KernelStore store(options);
  const auto held =
      DiskCache(options.cache).Lock(SampleKey(), absl::Seconds(1));
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_TRUE(store.Get(Request()).ok());
  EXPECT_THAT(log_, ElementsAre(HasSubstr("still held")));
}

// The compiles of all processes are counted by the bytes of one file.
TEST_F(KernelStoreTest, ProcessesWithAColdCacheCompileEachKeyOnce) {
  const std::string counter = folder_.Path("counter");
  std::vector<pid_t> children;
  for (int process = 0; process < 8; ++process) {
    children.push_back(StartChild([this, &counter] {
      KernelStore store(Options([&counter](const KernelRequest& request) {
        const UniqueFd fd(open(
            counter.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
        const bool counted = write(fd.get(), "x", 1) == 1;
        absl::SleepFor(absl::Milliseconds(30));
        return counted ? CompileSample(request)
                       : absl::InternalError("not counted");
      }));
      for (int page_size = 1; page_size <= 4; ++page_size) {
        const auto entry = store.Get(Request(page_size));
        if (!entry.ok()) return 1;
        if ((*entry)->payload != SampleKey(page_size).spec) return 2;
      }
      return log_.empty() ? 0 : 3;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(WaitForChild(child), 0);
  EXPECT_EQ(ReadFile(counter)->size(), 4u);
}

}  // namespace
}  // namespace kvforge
