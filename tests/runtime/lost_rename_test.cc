// Network file systems may report a rename as failed that was done (the answer
// was lost and the request repeated), or as done before others see its file.
// Neither costs a caller its kernel. This program's rename stands in for the C
// library's.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/kernel_store.h"
#include "tests/runtime/sample_entry.h"
#include "tests/runtime/temporary_folder.h"

namespace {

enum class Rename { kReal, kDoneButReported, kNotSeenYet };
Rename next_rename = Rename::kReal;
std::string hidden_as;  // where kNotSeenYet leaves the file
std::string hidden_from;

}  // namespace

extern "C" int rename(const char* from, const char* to) noexcept {
  const auto real = [](const char* a, const char* b) {
    return renameat(AT_FDCWD, a, AT_FDCWD, b);
  };
  switch (next_rename) {
    case Rename::kReal:
      break;
    case Rename::kDoneButReported:
      if (real(from, to) != 0) return -1;
      errno = ENOENT;  // what the repeated request meets
      return -1;
    case Rename::kNotSeenYet:
      hidden_as = to;
      hidden_from = std::string(to) + ".hidden";
      return real(from, hidden_from.c_str());
  }
  return real(from, to);
}

namespace kvforge {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LostRename : public ::testing::Test {
 protected:
  ~LostRename() override { next_rename = Rename::kReal; }

  KernelStoreOptions Options() {
    KernelStoreOptions options;
    options.cache.roots = {{folder_.Path("root")}};
    options.compile = [](const KernelRequest& request) {
      Entry entry = SampleEntry();
      entry.payload = request.key.spec;
      return absl::StatusOr<Entry>(std::move(entry));
    };
    options.log = [this](absl::string_view line) { log_.emplace_back(line); };
    return options;
  }
  KernelRequest Request() const { return {SampleKey(16), "sm_90", "cuda"}; }
  // From a store of its own, as another process has.
  KernelSource SourceElsewhere() {
    KernelStore store(Options());
    KernelSource source = KernelSource::kMemory;
    const auto entry = store.Get(Request(), &source);
    EXPECT_TRUE(entry.ok()) << entry.status();
    return source;
  }

  TemporaryFolder folder_;
  std::vector<std::string> log_;
};

TEST_F(LostRename, OneThatWasDoneAndReportedAsFailedStillGivesTheKernel) {
  KernelStore store(Options());
  next_rename = Rename::kDoneButReported;
  KernelSource source = KernelSource::kMemory;
  const auto entry = store.Get(Request(), &source);
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(source, KernelSource::kCompiled);
  EXPECT_THAT(log_, Contains(HasSubstr("stays in memory only")));
  next_rename = Rename::kReal;
  ASSERT_TRUE(store.Get(Request(), &source).ok());
  EXPECT_EQ(source, KernelSource::kMemory);
  EXPECT_EQ(store.compile_count(), 1);
  // It is there all the same, and whole.
  EXPECT_EQ(SourceElsewhere(), KernelSource::kDisk);
}

TEST_F(LostRename, OneThatOthersDoNotSeeYetIsAMissThere) {
  KernelStore store(Options());
  next_rename = Rename::kNotSeenYet;
  ASSERT_TRUE(store.Get(Request()).ok());
  EXPECT_THAT(log_, IsEmpty());
  next_rename = Rename::kReal;
  EXPECT_EQ(SourceElsewhere(), KernelSource::kCompiled);
  // The first appears in the place of the second.
  ASSERT_EQ(::rename(hidden_from.c_str(), hidden_as.c_str()), 0);
  EXPECT_EQ(SourceElsewhere(), KernelSource::kDisk);
  KernelSource source = KernelSource::kDisk;
  ASSERT_TRUE(store.Get(Request(), &source).ok());
  EXPECT_EQ(source, KernelSource::kMemory);
}

}  // namespace
}  // namespace kvforge
