// What must not cost a caller its kernel: damaged files, full disks, homes that
// are none, processes that are killed.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/file.h"
#include "runtime/base/knobs.h"
#include "runtime/kernel_store.h"
#include "tests/runtime/sample_entry.h"
#include "tests/runtime/temporary_folder.h"

namespace kvforge {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uid_t kNamelessUser = 4242;  // has no line in /etc/passwd
constexpr int kCannotTry = 77;         // a child's exit code

KernelRequest Request(int page_size = 16) {
  return {SampleKey(page_size), "sm_90", "cuda"};
}

absl::StatusOr<Entry> CompileSample(const KernelRequest& request) {
  Entry entry = SampleEntry();
  entry.payload = request.key.spec;
  return entry;
}

class CacheFaults : public ::testing::Test {
 protected:
  KernelStoreOptions Options(CompileFunction compile = CompileSample) {
    KernelStoreOptions options;
    options.cache.roots = {{root_}};
    options.cache.warn = [this](absl::string_view line) {
      warnings_.emplace_back(line);
    };
    options.compile = std::move(compile);
    options.log = [this](absl::string_view line) { log_.emplace_back(line); };
    return options;
  }
  // Without fsync, whose cost is not what these tests are about.
  static void Overwrite(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  }

  TemporaryFolder folder_;
  std::string root_ = folder_.Path("root");
  std::vector<std::string> warnings_;
  std::vector<std::string> log_;
};

TEST_F(CacheFaults, AFileCutAtAnyByteIsAMissThatIsCompiledAgain) {
  DiskCache cache(Options().cache);
  ASSERT_TRUE(cache.Publish(SampleEntry()).ok());
  const std::string path = DiskCache::EntryPath(root_, SampleKey());
  const std::string whole = *ReadFile(path);
  for (size_t kept = 0; kept < whole.size(); ++kept) {
    Overwrite(path, whole.substr(0, kept));
    ASSERT_FALSE(cache.Lookup(SampleKey()).has_value()) << "kept " << kept;
    ASSERT_NE(access(path.c_str(), F_OK), 0) << "kept " << kept;
  }
  EXPECT_THAT(warnings_, SizeIs(1));  // a path once
  KernelStore store(Options());
  EXPECT_TRUE(store.Get(Request()).ok());
  EXPECT_TRUE(cache.Lookup(SampleKey()).has_value());
}

TEST_F(CacheFaults, AFileWithAnyByteFlippedIsAMiss) {
  DiskCache cache(Options().cache);
  ASSERT_TRUE(cache.Publish(SampleEntry()).ok());
  const std::string path = DiskCache::EntryPath(root_, SampleKey());
  const std::string whole = *ReadFile(path);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] ^= static_cast<char>(1 << at % 8);
    Overwrite(path, bytes);
    ASSERT_FALSE(cache.Lookup(SampleKey()).has_value()) << "byte " << at;
  }
  Overwrite(path, whole);
  EXPECT_TRUE(cache.Lookup(SampleKey()).has_value());
}

// A limit on file sizes stands for a disk that fills within the entry.
TEST_F(CacheFaults, AWriteThatFailsHalfWayStillGivesTheKernel) {
  EXPECT_EQ(WaitForChild(StartChild([this] {
              signal(SIGXFSZ, SIG_IGN);
              const struct rlimit limit = {200, 200};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              KernelStore store(Options());
              if (!store.Get(Request()).ok()) return 2;
              if (!store.Get(Request()).ok()) return 3;
              if (store.compile_count() != 1) return 4;
              if (log_.size() != 1) return 5;
              return absl::StrContains(log_[0], "stays in memory only") ? 0 : 6;
            })),
            0);
  EXPECT_THAT(FilesUnder(root_), IsEmpty());
}

// A file system of 64 KiB that a file of ours has filled.
TEST_F(CacheFaults, AFullDiskStillGivesTheKernel) {
  ASSERT_EQ(mkdir(root_.c_str(), 0700), 0);
  const int code = WaitForChild(StartChild([this] {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", root_.c_str(), "tmpfs", 0, "size=64k,mode=0700") != 0) {
      return kCannotTry;
    }
    KernelStore store(Options());
    if (!store.Get(Request(1)).ok()) return 1;
    const UniqueFd filler(open(absl::StrCat(root_, "/filler").c_str(),
                               O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const std::string zeros(4096, '\0');
    while (write(filler.get(), zeros.data(), zeros.size()) > 0) {
    }
    if (!store.Get(Request(2)).ok()) return 2;
    if (log_.empty() || !absl::StrContains(log_.back(), "No space left")) {
      return 3;
    }
    // What was there before is whole, and no part of the new one is left.
    KernelStore again(Options(nullptr));
    if (!again.Get(Request(1)).ok()) return 4;
    for (const std::string& path : FilesUnder(root_)) {
      if (absl::StrContains(path, kTemporaryPrefix)) return 5;
    }
    return warnings_.empty() ? 0 : 6;
  }));
  if (code == kCannotTry) GTEST_SKIP() << "may not mount a file system";
  EXPECT_EQ(code, 0);
}

struct HomeCase {
  const char* name;
  std::map<std::string, std::string> environment;
  bool as_nameless_user;
};

class Homes : public CacheFaults,
              public ::testing::WithParamInterface<HomeCase> {};

TEST_P(Homes, ThatCannotBeWrittenStillGiveTheKernel) {
  const HomeCase& c = GetParam();
  if (c.as_nameless_user && geteuid() != 0) {
    GTEST_SKIP() << "needs root to become another user";
  }
  EXPECT_EQ(WaitForChild(StartChild([this, &c] {
              if (c.as_nameless_user &&
                  setresuid(kNamelessUser, kNamelessUser, kNamelessUser) != 0) {
                return 1;
              }
              const auto knobs = ParseKnobs(
                  [&c](absl::string_view name) -> std::optional<std::string> {
                    const auto it = c.environment.find(std::string(name));
                    if (it == c.environment.end()) return std::nullopt;
                    return it->second;
                  });
              if (!knobs.ok()) return 2;
              KernelStoreOptions options = Options();
              options.cache = DiskCacheOptionsFromKnobs(*knobs);
              KernelStore store(options);
              if (!store.Get(Request()).ok()) return 3;
              if (!store.Get(Request()).ok()) return 4;
              if (store.compile_count() != 1) return 5;
              return log_.empty() ? 6 : 0;
            })),
            0);
}

INSTANTIATE_TEST_SUITE_P(
    Environments, Homes,
    ::testing::Values(HomeCase{"Unset", {}, false},
                      HomeCase{"Empty", {{"HOME", ""}}, false},
                      HomeCase{"Root", {{"HOME", "/"}}, true},
                      HomeCase{"Missing", {{"HOME", "/nonexistent"}}, true},
                      HomeCase{"AFile", {{"HOME", "/dev/null"}}, false},
                      HomeCase{"NoUserOfThatNumber", {}, true}),
    [](const auto& info) { return info.param.name; });

TEST_F(CacheFaults, ArchsAndTheHostShareAFolder) {
  const std::vector<std::string> archs = {"sm_80", "sm_90", "sm_90a",
                                          "host-sm_90"};
  KernelStore store(Options([](const KernelRequest& request) {
    absl::StatusOr<Entry> entry = CompileSample(request);
    entry->payload = request.key.arch;
    return entry;
  }));
  for (const std::string& arch : archs) {
    KernelRequest request = Request();
    request.key.arch = arch;
    ASSERT_TRUE(store.Get(request).ok());
  }
  EXPECT_EQ(store.compile_count(), 4);
  KernelStore strict(Options(nullptr));
  for (const std::string& arch : archs) {
    KernelRequest request = Request();
    request.key.arch = arch;
    const auto entry = strict.Get(request);
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ((*entry)->payload, arch);
  }
  EXPECT_THAT(FilesUnder(root_), SizeIs(4));
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all_pages = 0;
  int64_t resident_pages = 0;
  statm >> all_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

// 1000 payloads of 256 KiB are 250 MiB; 8 MiB of them may stay.
TEST_F(CacheFaults, AThousandSpecialisationsTakeBoundedMemory) {
  constexpr int64_t kMemoryBytes = int64_t{8} << 20;
  KernelStoreOptions options = Options([](const KernelRequest& request) {
    absl::StatusOr<Entry> entry = CompileSample(request);
    entry->payload.assign(256 << 10, 'x');
    return entry;
  });
  options.cache.roots.clear();
  options.log = nullptr;
  options.memory_bytes = kMemoryBytes;
  KernelStore store(options);
  const int64_t before = ResidentBytes();
  for (int page_size = 1; page_size <= 1000; ++page_size) {
    ASSERT_TRUE(store.Get(Request(page_size)).ok());
  }
  EXPECT_EQ(store.compile_count(), 1000);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(ResidentBytes() - before, 4 * kMemoryBytes);
#endif
}

// Eight processes, the same 20 keys, each from another one on.
TEST_F(CacheFaults, RacingProcessesCompileEachOfTwentyKeysOnce) {
  constexpr int kKeys = 20;
  const std::string counter = folder_.Path("counter");
  std::vector<pid_t> children;
  for (int process = 0; process < 8; ++process) {
    children.push_back(StartChild([this, &counter, process] {
      KernelStore store(Options([&counter](const KernelRequest& request) {
        const UniqueFd fd(open(
            counter.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
        const bool counted = write(fd.get(), "x", 1) == 1;
        absl::SleepFor(absl::Milliseconds(5));
        return counted ? CompileSample(request)
                       : absl::InternalError("not counted");
      }));
      for (int i = 0; i < kKeys; ++i) {
        const int page_size = 1 + (process * 3 + i) % kKeys;
        const auto entry = store.Get(Request(page_size));
        if (!entry.ok()) return 1;
        if ((*entry)->payload != SampleKey(page_size).spec) return 2;
      }
      return log_.empty() && warnings_.empty() ? 0 : 3;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(WaitForChild(child), 0);
  EXPECT_EQ(ReadFile(counter)->size(), size_t{kKeys});
}

// Each round kills a process that publishes at a moment drawn anew; then every
// entry there is must be whole, and the next process gets all kernels. More
// rounds: --gtest_repeat=N.
TEST_F(CacheFaults, AProcessKilledAtAnyMomentLeavesAUsableCache) {
  constexpr int kRounds = 25;
  constexpr int kKeys = 6;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  int killed_within = 0;
  for (int round = 0; round < kRounds; ++round) {
    const pid_t child = StartChild([this] {
      KernelStore store(Options());
      for (int page_size = 1;; page_size = page_size % kKeys + 1) {
        // Again and again, so that a kill also meets an entry's replacement.
        const auto lock =
            store.disk().Lock(SampleKey(page_size), absl::Seconds(1));
        Entry entry = SampleEntry(page_size);
        entry.payload.assign(20000, 'x');
        if (!store.disk().Publish(entry).ok()) return 1;
      }
    });
    absl::SleepFor(absl::Microseconds(
        std::uniform_int_distribution<int>(0, 20000)(random)));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    ASSERT_EQ(WaitForChild(child), -1);
    const std::vector<ListedEntry> listed = DiskCache(Options().cache).List();
    for (const ListedEntry& item : listed) {
      ASSERT_TRUE(item.entry.ok()) << item.path << item.entry.status();
    }
    killed_within += !listed.empty();
    KernelStoreOptions options = Options();
    options.lock_timeout = absl::Milliseconds(100);
    KernelStore next(options);
    for (int page_size = 1; page_size <= kKeys; ++page_size) {
      ASSERT_TRUE(next.Get(Request(page_size)).ok());
    }
    ASSERT_THAT(warnings_, IsEmpty());
    ASSERT_THAT(log_, IsEmpty());  // no lock of the dead is waited for
    for (int page_size = 1; page_size <= kKeys; page_size += 2) {
      unlink(DiskCache::EntryPath(root_, SampleKey(page_size)).c_str());
    }
  }
  EXPECT_GT(killed_within, 0);
}

}  // namespace
}  // namespace kvforge
