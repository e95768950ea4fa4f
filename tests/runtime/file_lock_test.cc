#include "runtime/cache/file_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/file.h"
#include "tests/runtime/temporary_folder.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

TEST(FileLock, ExcludesUntilReleasedAndLeavesNoFile) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("a.lock");
  {
    const auto held = FileLock::Acquire(path, absl::ZeroDuration());
    ASSERT_TRUE(held.ok()) << held.status();
    const auto second = FileLock::Acquire(path, absl::Milliseconds(10));
    ASSERT_TRUE(absl::IsDeadlineExceeded(second.status()));
    EXPECT_THAT(std::string(second.status().message()), HasSubstr(path));
  }
  EXPECT_TRUE(FilesUnder(folder.path()).empty());
  EXPECT_TRUE(FileLock::Acquire(path, absl::ZeroDuration()).ok());
  EXPECT_FALSE(
      FileLock::Acquire(folder.Path("no/a.lock"), absl::Seconds(1)).ok());
}

TEST(FileLock, OfAKilledProcessIsFree) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("a.lock");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = StartChild([&path, &ready] {
    const auto held = FileLock::Acquire(path, absl::Seconds(5));
    if (write(ready[1], held.ok() ? "y" : "n", 1) != 1) return 1;
    pause();
    return 0;
  });
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      FileLock::Acquire(path, absl::ZeroDuration()).status()));
  ASSERT_EQ(kill(child, SIGKILL), 0);
  EXPECT_EQ(WaitForChild(child), -1);
  EXPECT_TRUE(FileLock::Acquire(path, absl::Seconds(5)).ok());
}

// A child that is forked while the lock is held shares its descriptor.
TEST(FileLock, IsReleasedWhileAForkedChildLives) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("a.lock");
  pid_t child = -1;
  {
    const auto held = FileLock::Acquire(path, absl::ZeroDuration());
    ASSERT_TRUE(held.ok()) << held.status();
    // A second name keeps the file, as a holder's removal would hide the fault.
    ASSERT_EQ(link(path.c_str(), folder.Path("b.lock").c_str()), 0);
    child = StartChild([] {
      pause();
      return 0;
    });
  }
  EXPECT_TRUE(
      FileLock::Acquire(folder.Path("b.lock"), absl::ZeroDuration()).ok());
  ASSERT_EQ(kill(child, SIGKILL), 0);
  WaitForChild(child);
}

// A holder removes the file; whoever opened it before must not believe to hold
// the lock. Each round reads a number, adds one and writes it.
TEST(FileLock, ThatIsRemovedAndMadeAgainStillExcludes) {
  constexpr int kProcesses = 6;
  constexpr int kRounds = 4000;
  const TemporaryFolder folder;
  const std::string path = folder.Path("a.lock");
  const UniqueFd counter(
      open(folder.Path("counter").c_str(), O_RDWR | O_CREAT, 0600));
  int count = 0;
  ASSERT_EQ(pwrite(counter.get(), &count, sizeof(count), 0), 4);
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    children.push_back(StartChild([&path, &counter] {
      for (int round = 0; round < kRounds;) {
        // No wait, so that opening and locking meet removals.
        const auto lock = FileLock::Acquire(path, absl::ZeroDuration());
        if (absl::IsDeadlineExceeded(lock.status())) continue;
        if (!lock.ok()) return 1;
        int number = 0;
        if (pread(counter.get(), &number, sizeof(number), 0) != 4) return 2;
        ++number;
        if (pwrite(counter.get(), &number, sizeof(number), 0) != 4) return 3;
        ++round;
      }
      return 0;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(WaitForChild(child), 0);
  ASSERT_EQ(pread(counter.get(), &count, sizeof(count), 0), 4);
  EXPECT_EQ(count, kProcesses * kRounds);
}

}  // namespace
}  // namespace kvforge
