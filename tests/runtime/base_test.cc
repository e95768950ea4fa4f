#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/digest.h"
#include "runtime/base/file.h"
#include "runtime/base/knobs.h"
#include "runtime/base/shown.h"
#include "runtime/base/status_macros.h"
#include "tests/runtime/temporary_folder.h"

namespace kvforge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// FIPS 180-4 examples and NIST CAVP SHA256ShortMsg.
TEST(Digest, MatchesPublishedVectors) {
  EXPECT_EQ(Sha256Hex(""),
            "e3b0c44298fc1c149afbf4c8996fb924"
            "27ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"),
            "ba7816bf8f01cfea414140de5dae2223"
            "b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(
      Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256Hex("\xd3"),
            "28969cdfa74a12c82f3bad960b0b000a"
            "ca2ac329deea5c2328ebc6f2ba9802c1");
  EXPECT_EQ(Sha256Hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67"
            "f1809a48a497200e046d39ccc7112cd0");
}

TEST(Digest, PiecesGiveTheDigestOfTheWhole) {
  std::string text;
  for (int i = 0; i < 300; ++i) text.push_back(static_cast<char>(i * 7));
  const std::string whole = Sha256Hex(text);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 digest;
    digest.Update(absl::string_view(text).substr(0, cut));
    digest.Update(absl::string_view(text).substr(cut));
    ASSERT_EQ(digest.FinishHex(), whole) << "cut at " << cut;
  }
}

TEST(Shown, CutsLongTextsBetweenCharacters) {
  const std::string whole(kMostShownBytes, 'x');
  EXPECT_EQ(Shown(""), "");
  EXPECT_EQ(Shown(whole), whole);
  EXPECT_EQ(Shown(whole + "y"), whole + "... (201 bytes)");
  // U+20AC has three bytes, of which one fits.
  EXPECT_EQ(Shown(whole.substr(1) + "\xE2\x82\xAC"),
            whole.substr(1) + "... (202 bytes)");
  EXPECT_EQ(Shown(std::string(300, '\x80')), "... (300 bytes)");
}

TEST(File, WrittenFilesReadBackAndLeaveNoTemporary) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("a");
  const std::string bytes("with \0 inside", 13);
  ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
  EXPECT_EQ(*ReadFile(path), bytes);
  EXPECT_THAT(FilesUnder(folder.path()), ElementsAre(path));
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(File, ErrorsSayWhatAndWhere) {
  const TemporaryFolder folder;
  const auto missing = ReadFile(folder.Path("missing"));
  EXPECT_TRUE(absl::IsNotFound(missing.status())) << missing.status();
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/missing"));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFile(folder.path()).status()));
  ASSERT_TRUE(WriteFileAtomically(folder.Path("four"), "1234").ok());
  EXPECT_TRUE(ReadFile(folder.Path("four"), 4).ok());
  EXPECT_TRUE(absl::IsOutOfRange(ReadFile(folder.Path("four"), 3).status()));
  EXPECT_FALSE(WriteFileAtomically(folder.Path("no/such"), "x").ok());
}

// A file size limit stands for a full disk: the write stops half way.
TEST(File, AWriteThatFailsHalfWayKeepsTheOldFileAndNoTemporary) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("a");
  ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
  const int code = WaitForChild(StartChild([&path] {
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {1000, 1000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    return WriteFileAtomically(path, std::string(4000, 'x')).ok() ? 1 : 0;
  }));
  EXPECT_EQ(code, 0);
  EXPECT_EQ(*ReadFile(path), "old");
  EXPECT_THAT(FilesUnder(folder.path()), ElementsAre(path));
}

TEST(File, MakesPrivateFolders) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("a/b//c");
  ASSERT_TRUE(MakeFolders(path).ok());
  ASSERT_TRUE(MakeFolders(path).ok());
  struct stat info;
  ASSERT_EQ(stat(folder.Path("a/b").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_TRUE(WriteFileAtomically(folder.Path("file"), "").ok());
  EXPECT_FALSE(MakeFolders(folder.Path("file/below")).ok());
  EXPECT_FALSE(MakeFolders("").ok());
}

absl::StatusOr<Knobs> KnobsOf(std::map<std::string, std::string> variables) {
  return ParseKnobs(
      [variables](absl::string_view name) -> std::optional<std::string> {
        const auto it = variables.find(std::string(name));
        if (it == variables.end()) return std::nullopt;
        return it->second;
      });
}

TEST(Knobs, CacheFoldersFollowTheEnvironment) {
  EXPECT_THAT(KnobsOf({})->cache_dirs, IsEmpty());
  EXPECT_THAT(KnobsOf({{"HOME", "/h"}})->cache_dirs,
              ElementsAre("/h/.cache/kvforge"));
  EXPECT_THAT(KnobsOf({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}})->cache_dirs,
              ElementsAre("/x/kvforge"));
  EXPECT_THAT(
      KnobsOf({{"HOME", "/h"}, {"XDG_CACHE_HOME", "relative"}})->cache_dirs,
      ElementsAre("/h/.cache/kvforge"));
  EXPECT_THAT(KnobsOf({{"HOME", "/h"}, {"KVFORGE_CACHE_DIR", ""}})->cache_dirs,
              IsEmpty());
  EXPECT_THAT(KnobsOf({{"KVFORGE_CACHE_DIR", "/a:/b"}})->cache_dirs,
              ElementsAre("/a", "/b"));
}

TEST(Knobs, ValuesParse) {
  EXPECT_EQ(KnobsOf({})->cache_bytes, int64_t{2} << 30);
  EXPECT_EQ(KnobsOf({{"KVFORGE_CACHE_BYTES", "0"}})->cache_bytes, 0);
  EXPECT_EQ(KnobsOf({{"KVFORGE_CACHE_BYTES", "3m"}})->cache_bytes, 3 << 20);
  EXPECT_TRUE(KnobsOf({{"KVFORGE_RECOMPILE", "1"}})->recompile);
  EXPECT_FALSE(KnobsOf({{"KVFORGE_RECOMPILE", "0"}})->recompile);
  EXPECT_EQ(KnobsOf({{"KVFORGE_VERBOSE", "2"}})->verbose, 2);
  EXPECT_TRUE(KnobsOf({{"KVFORGE_JIT", "off"}})->strict());
  EXPECT_FALSE(KnobsOf({})->strict());
  EXPECT_EQ(KnobsOf({{"CUDA_PATH", "/p"}})->cuda_home, "/p");
  EXPECT_EQ(KnobsOf({{"CUDA_PATH", "/p"}, {"CUDA_HOME", "/h"}})->cuda_home,
            "/h");
}

TEST(Knobs, BadValuesNameTheVariable) {
  for (const auto& [name, value] : std::map<std::string, std::string>{
           {"KVFORGE_CACHE_BYTES", "9223372036854775807K"},
           {"KVFORGE_RECOMPILE", "yes"},
           {"KVFORGE_VERBOSE", "-1"}}) {
    const auto knobs = KnobsOf({{name, value}});
    ASSERT_TRUE(absl::IsInvalidArgument(knobs.status())) << name;
    EXPECT_THAT(std::string(knobs.status().message()), HasSubstr(name));
    EXPECT_THAT(std::string(knobs.status().message()), HasSubstr(value));
  }
  EXPECT_FALSE(KnobsOf({{"KVFORGE_CACHE_BYTES", "-1"}}).ok());
  EXPECT_FALSE(KnobsOf({{"KVFORGE_CACHE_BYTES", "G"}}).ok());
}

absl::StatusOr<int> Half(int number) {
  if (number % 2 != 0) return absl::InvalidArgumentError("odd");
  return number / 2;
}

absl::StatusOr<int> Quarter(int number) {
  ASSIGN_OR_RETURN(const int half, Half(number));
  ASSIGN_OR_RETURN(int quarter, Half(half));
  RETURN_IF_ERROR(absl::OkStatus());
  return quarter;
}

TEST(StatusMacros, PassErrorsOn) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_TRUE(absl::IsInvalidArgument(Quarter(6).status()));
}

}  // namespace
}  // namespace kvforge
