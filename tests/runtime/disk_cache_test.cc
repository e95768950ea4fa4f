#include "runtime/cache/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/file.h"
#include "runtime/cache/why_miss.h"
#include "tests/runtime/sample_entry.h"
#include "tests/runtime/temporary_folder.h"

namespace kvforge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uid_t kOtherUser = 65534;

class DiskCacheTest : public ::testing::Test {
 protected:
  DiskCacheOptions Options(std::vector<std::string> roots) {
    DiskCacheOptions options;
    for (const std::string& root : roots) options.roots.push_back({root});
    options.warn = [this](absl::string_view message) {
      warnings_.emplace_back(message);
    };
    return options;
  }
  DiskCacheOptions Options() { return Options({root_}); }

  // Sets the time of a file's last use.
  static void Age(const std::string& path, absl::Duration age) {
    const timespec then = absl::ToTimespec(absl::Now() - age);
    const timespec times[2] = {then, then};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0) << path;
  }
  std::string PathOf(int page_size) const {
    return DiskCache::EntryPath(root_, SampleKey(page_size));
  }
  static bool Exists(const std::string& path) {
    return access(path.c_str(), F_OK) == 0;
  }

  TemporaryFolder folder_;
  std::string root_ = folder_.Path("root");
  std::vector<std::string> warnings_;
};

TEST_F(DiskCacheTest, FindsWhatWasPublishedEvenInAnotherProcess) {
  ASSERT_EQ(WaitForChild(StartChild([this] {
              return DiskCache(Options()).Publish(SampleEntry()).ok() ? 0 : 1;
            })),
            0);
  DiskCache cache(Options());
  const auto found = cache.Lookup(SampleKey());
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(*found == SampleEntry());
  EXPECT_FALSE(cache.Lookup(SampleKey(32)).has_value());
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(DiskCacheTest, LiesInTwoLevelsOfPrivateFolders) {
  ASSERT_TRUE(DiskCache(Options()).Publish(SampleEntry()).ok());
  const std::string digest = KeyDigest(SampleKey());
  const std::string shard = absl::StrCat(root_, "/", digest.substr(0, 2));
  EXPECT_TRUE(Exists(absl::StrCat(shard, "/", digest.substr(2), ".kvk")));
  for (const std::string& path : {root_, shard}) {
    struct stat info;
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u) << path;
  }
}

TEST_F(DiskCacheTest, WithoutRootsMissesAndPublishesNothing) {
  DiskCache cache(Options(std::vector<std::string>{}));
  EXPECT_FALSE(cache.Lookup(SampleKey()).has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(cache.Publish(SampleEntry())));
}

TEST_F(DiskCacheTest, PrimedRootsBehindTheFirstAreReadAndLeftAlone) {
  const std::string primed = folder_.Path("primed");
  ASSERT_TRUE(DiskCache(Options({primed})).Publish(SampleEntry()).ok());
  DiskCache cache(Options({root_, primed}));
  EXPECT_TRUE(cache.Lookup(SampleKey()).has_value());

  const std::string path = DiskCache::EntryPath(primed, SampleKey());
  ASSERT_TRUE(WriteFileAtomically(path, "damaged").ok());
  EXPECT_FALSE(cache.Lookup(SampleKey()).has_value());
  EXPECT_EQ(*ReadFile(path), "damaged");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr(path)));
}

TEST_F(DiskCacheTest, DamageIsSetAsideWithOneWarningAndIsAMiss) {
  const std::string whole = SerializeEntry(SampleEntry());
  for (const std::string& damaged :
       {std::string(), std::string("no entry"), whole.substr(0, 100),
        whole.substr(0, whole.size() - 1), SerializeEntry(SampleEntry(32))}) {
    warnings_.clear();
    DiskCache cache(Options());
    ASSERT_TRUE(cache.Publish(SampleEntry()).ok());
    ASSERT_TRUE(WriteFileAtomically(PathOf(16), damaged).ok());
    EXPECT_FALSE(cache.Lookup(SampleKey()).has_value());
    EXPECT_FALSE(cache.Lookup(SampleKey()).has_value());
    EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr(PathOf(16)),
                                             HasSubstr(".damaged"))));
    EXPECT_FALSE(Exists(PathOf(16)));
    EXPECT_EQ(*ReadFile(absl::StrCat(PathOf(16), ".damaged")), damaged);
    ASSERT_TRUE(cache.Publish(SampleEntry()).ok());
    EXPECT_TRUE(cache.Lookup(SampleKey()).has_value());
  }
}

TEST_F(DiskCacheTest, AnEntryThatDoesNotLoadIsNotFoundAgainUntilPublished) {
  const std::string primed = folder_.Path("primed");
  ASSERT_TRUE(DiskCache(Options({primed})).Publish(SampleEntry()).ok());
  DiskCache cache(Options({root_, primed}));
  ASSERT_TRUE(cache.Publish(SampleEntry()).ok());
  cache.Quarantine(SampleKey(), "the driver does not load it");
  EXPECT_FALSE(Exists(PathOf(16)));
  EXPECT_FALSE(cache.Lookup(SampleKey()).has_value());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("driver does not load"),
                                     HasSubstr(primed)));
  ASSERT_TRUE(cache.Publish(SampleEntry()).ok());
  EXPECT_TRUE(cache.Lookup(SampleKey()).has_value());
}

TEST_F(DiskCacheTest, WorldWritableEntriesAreRefusedUnlessTrusted) {
  DiskCache cache(Options());
  ASSERT_TRUE(cache.Publish(SampleEntry()).ok());
  ASSERT_EQ(chmod(PathOf(16).c_str(), 0602), 0);
  EXPECT_FALSE(cache.Lookup(SampleKey()).has_value());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("every user")));
  EXPECT_TRUE(Exists(PathOf(16)));
  DiskCacheOptions trusting = Options();
  trusting.roots[0].trusted = true;
  EXPECT_TRUE(DiskCache(trusting).Lookup(SampleKey()).has_value());
}

TEST_F(DiskCacheTest, EntriesOfAnotherUserAreRefusedUnlessTrusted) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  DiskCache cache(Options());
  ASSERT_TRUE(cache.Publish(SampleEntry()).ok());
  ASSERT_EQ(chown(PathOf(16).c_str(), kOtherUser, kOtherUser), 0);
  EXPECT_FALSE(cache.Lookup(SampleKey()).has_value());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("belongs to user 65534")));
  DiskCacheOptions trusting = Options();
  trusting.roots[0].trusted = true;
  EXPECT_TRUE(DiskCache(trusting).Lookup(SampleKey()).has_value());
}

TEST_F(DiskCacheTest, APipeInAnEntrysPlaceIsRefusedWithoutWaiting) {
  DiskCache cache(Options());
  ASSERT_TRUE(cache.Publish(SampleEntry()).ok());
  ASSERT_EQ(unlink(PathOf(16).c_str()), 0);
  ASSERT_EQ(mkfifo(PathOf(16).c_str(), 0600), 0);
  EXPECT_FALSE(cache.Lookup(SampleKey()).has_value());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("no regular file")));
}

TEST_F(DiskCacheTest, AReadOnlyRootIsReadAndPublishingIsAnErrorToLog) {
  ASSERT_TRUE(DiskCache(Options()).Publish(SampleEntry()).ok());
  // Root may write anywhere, so another user does this part.
  const bool drop = geteuid() == 0;
  for (const auto& item :
       std::filesystem::recursive_directory_iterator(root_)) {
    if (drop) {
      ASSERT_EQ(chown(item.path().c_str(), kOtherUser, kOtherUser), 0);
    }
    ASSERT_EQ(chmod(item.path().c_str(), item.is_directory() ? 0555 : 0444), 0);
  }
  ASSERT_EQ(chmod(root_.c_str(), 0555), 0);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
  EXPECT_EQ(WaitForChild(StartChild([this, drop] {
              if (drop && setresuid(kOtherUser, kOtherUser, kOtherUser) != 0) {
                return 1;
              }
              DiskCache cache(Options());
              if (!cache.Lookup(SampleKey()).has_value()) return 2;
              if (cache.Publish(SampleEntry(32)).ok()) return 3;
              if (cache.Publish(SampleEntry(16)).ok()) return 4;
              if (!cache.Lookup(SampleKey()).has_value()) return 5;
              return 0;
            })),
            0);
  ASSERT_EQ(chmod(root_.c_str(), 0755), 0);
}

TEST_F(DiskCacheTest, ARootThatCannotBeMadeIsAnErrorToLog) {
  ASSERT_TRUE(WriteFileAtomically(folder_.Path("file"), "").ok());
  DiskCache cache(Options({folder_.Path("file/root")}));
  EXPECT_FALSE(cache.Publish(SampleEntry()).ok());
  EXPECT_FALSE(cache.Lookup(SampleKey()).has_value());
}

TEST_F(DiskCacheTest, EvictsTheLeastRecentlyUsedAboveTheCap) {
  const int64_t entry_bytes =
      static_cast<int64_t>(SerializeEntry(SampleEntry(16)).size());
  DiskCacheOptions options = Options();
  options.byte_cap = 3 * entry_bytes + 3;
  DiskCache cache(options);
  int age_hours = 10;
  for (const int page_size : {10, 11, 12}) {
    ASSERT_TRUE(cache.Publish(SampleEntry(page_size)).ok());
    Age(PathOf(page_size), absl::Hours(age_hours--));
  }
  // Use makes the oldest the newest.
  ASSERT_TRUE(cache.Lookup(SampleKey(10)).has_value());
  ASSERT_TRUE(cache.Publish(SampleEntry(13)).ok());
  EXPECT_TRUE(Exists(PathOf(10)));
  EXPECT_FALSE(Exists(PathOf(11)));
  EXPECT_TRUE(Exists(PathOf(12)));
  EXPECT_TRUE(Exists(PathOf(13)));
}

TEST_F(DiskCacheTest, FreshEntriesOutliveTheCapUntilTrimmed) {
  DiskCacheOptions options = Options();
  options.byte_cap = 1;
  DiskCache cache(options);
  ASSERT_TRUE(cache.Publish(SampleEntry(16)).ok());
  ASSERT_TRUE(cache.Publish(SampleEntry(32)).ok());
  EXPECT_TRUE(cache.Lookup(SampleKey(16)).has_value());
  EXPECT_TRUE(cache.Lookup(SampleKey(32)).has_value());
  const auto trimmed = cache.Trim(0);
  ASSERT_TRUE(trimmed.ok()) << trimmed.status();
  EXPECT_EQ(trimmed->entries_removed, 2);
  EXPECT_EQ(trimmed->bytes_left, 0);
  EXPECT_FALSE(cache.Lookup(SampleKey(16)).has_value());
}

TEST_F(DiskCacheTest, TrimRemovesWhatDeadProcessesLeft) {
  DiskCache cache(Options());
  ASSERT_TRUE(cache.Publish(SampleEntry()).ok());
  const std::string shard =
      std::filesystem::path(PathOf(16)).parent_path().string();
  const std::string abandoned = absl::StrCat(shard, "/.tmp-abandoned");
  const std::string fresh = absl::StrCat(shard, "/.tmp-fresh");
  const std::string lock = absl::StrCat(root_, "/locks/dead.lock");
  for (const std::string& path : {abandoned, fresh, lock}) {
    ASSERT_TRUE(WriteFileAtomically(path, "x").ok()) << path;
  }
  Age(abandoned, absl::Hours(2));
  Age(lock, absl::Hours(2));
  ASSERT_TRUE(cache.Trim(int64_t{1} << 30).ok());
  EXPECT_FALSE(Exists(abandoned));
  EXPECT_FALSE(Exists(lock));
  EXPECT_TRUE(Exists(fresh));
  EXPECT_TRUE(Exists(PathOf(16)));
}

TEST_F(DiskCacheTest, ListShowsWholeAndDamagedEntries) {
  DiskCache cache(Options());
  ASSERT_TRUE(cache.Publish(SampleEntry(16)).ok());
  ASSERT_TRUE(cache.Publish(SampleEntry(32)).ok());
  ASSERT_TRUE(cache.Publish(SampleEntry(64)).ok());
  ASSERT_TRUE(WriteFileAtomically(PathOf(32), "damaged").ok());
  int whole = 0;
  int damaged = 0;
  for (const ListedEntry& item : cache.List()) {
    EXPECT_EQ(item.root, root_);
    EXPECT_GT(item.file_bytes, 0);
    if (item.entry.ok()) {
      ++whole;
      EXPECT_EQ(item.path, DiskCache::EntryPath(root_, item.entry->key));
    } else {
      ++damaged;
      EXPECT_EQ(item.path, PathOf(32));
    }
  }
  EXPECT_EQ(whole, 2);
  EXPECT_EQ(damaged, 1);
  // An entry under another key's name is damage too.
  ASSERT_TRUE(
      WriteFileAtomically(PathOf(32), SerializeEntry(SampleEntry(16))).ok());
  for (const ListedEntry& item : cache.List()) {
    EXPECT_EQ(item.entry.ok(), item.path != PathOf(32)) << item.path;
  }
}

TEST_F(DiskCacheTest, WhyMissNamesTheFieldThatDiffers) {
  DiskCache cache(Options());
  EXPECT_EQ(WhyMiss(SampleKey(), cache.List()).path, "");
  ASSERT_TRUE(cache.Publish(SampleEntry(16)).ok());
  ASSERT_TRUE(cache.Publish(SampleEntry(32)).ok());
  KeyFields key = SampleKey(32);
  key.tile = "8x32/2/4";
  const MissReport report = WhyMiss(key, cache.List());
  EXPECT_FALSE(report.hit);
  EXPECT_EQ(report.path, PathOf(32));
  EXPECT_THAT(report.differences,
              ElementsAre("tile: asked 8x32/2/4, entry has 8x64/3/4"));
  EXPECT_TRUE(WhyMiss(SampleKey(16), cache.List()).hit);
}

TEST_F(DiskCacheTest, ALockExcludesOthersForABoundedTime) {
  DiskCache cache(Options());
  {
    const auto held = cache.Lock(SampleKey(), absl::ZeroDuration());
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(
        cache.Lock(SampleKey(), absl::Milliseconds(20)).status()));
    EXPECT_TRUE(cache.Lock(SampleKey(32), absl::ZeroDuration()).ok());
  }
  EXPECT_TRUE(cache.Lock(SampleKey(), absl::ZeroDuration()).ok());
  EXPECT_THAT(FilesUnder(absl::StrCat(root_, "/locks")), IsEmpty());
}

// Each of 8 processes publishes and looks up the same 4 keys while a cap of one
// entry has them evict: nobody fails, and no file is ever seen half written.
TEST_F(DiskCacheTest, ProcessesThatPublishAndEvictAtOnceAllSucceed) {
  std::vector<pid_t> children;
  for (int process = 0; process < 8; ++process) {
    children.push_back(StartChild([this] {
      DiskCacheOptions options = Options();
      options.byte_cap = 1000;
      options.fresh = absl::ZeroDuration();
      DiskCache cache(options);
      for (int round = 0; round < 25; ++round) {
        for (int page_size = 16; page_size < 20; ++page_size) {
          if (!cache.Publish(SampleEntry(page_size)).ok()) return 1;
          const auto found = cache.Lookup(SampleKey(page_size));
          if (found && !(*found == SampleEntry(page_size))) return 2;
        }
      }
      return warnings_.empty() ? 0 : 3;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(WaitForChild(child), 0);
  for (const std::string& path : FilesUnder(root_)) {
    EXPECT_TRUE(absl::EndsWith(path, ".kvk")) << path;
  }
}

}  // namespace
}  // namespace kvforge
