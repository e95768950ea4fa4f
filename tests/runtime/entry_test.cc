#include "runtime/cache/entry.h"

#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/digest.h"
#include "runtime/cache/cache_key.h"
#include "tests/runtime/sample_entry.h"

namespace kvforge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CacheKey, EveryFieldMakesAnotherKey) {
  const std::vector<std::function<void(KeyFields&)>> changes = {
      [](KeyFields&) {},
      [](KeyFields& key) { key.schema = 2; },
      [](KeyFields& key) { key.spec += "/softcap=30"; },
      [](KeyFields& key) { key.tile = "8x32/3/4"; },
      [](KeyFields& key) { key.arch = "sm_90"; },
      [](KeyFields& key) { key.arch = "host-sm_90"; },
      [](KeyFields& key) { key.options.pop_back(); },
      [](KeyFields& key) { key.options.push_back(""); },
      [](KeyFields& key) { std::swap(key.options[0], key.options[1]); },
      [](KeyFields& key) { key.options = {"--std=c++17--fmad=false"}; },
      [](KeyFields& key) { key.build_id[0] = 'f'; },
      // The same bytes in a row, cut at another place.
      [](KeyFields& key) {
        key.tile += key.arch[0];
        key.arch.erase(0, 1);
      },
  };
  std::set<std::string> digests;
  for (const auto& change : changes) {
    KeyFields key = SampleKey();
    change(key);
    digests.insert(KeyDigest(key));
  }
  EXPECT_EQ(digests.size(), changes.size());
}

// Worked out apart from this code, over the documented parts:
//   u64 length and bytes of "kvforge cache key"; u64 schema; length and bytes
//   of spec, tile, arch; u64 count of options, each with its length; build_id.
TEST(CacheKey, IsTheSameInEveryBuild) {
  EXPECT_EQ(KeyDigest(SampleKey()),
            "32b32b9a62f23b0b6cc4d14734a98cc3"
            "e5251a3d3e338f9cb27661265b4b80f0");
}

TEST(CacheKey, NamesTheFieldsThatDiffer) {
  KeyFields key = SampleKey();
  EXPECT_TRUE(DifferingFields(key, SampleKey()).empty());
  key.tile = "x";
  key.build_id = "y";
  EXPECT_THAT(DifferingFields(key, SampleKey()),
              ElementsAre("tile", "build_id"));
  EXPECT_THAT(KeyText(key), HasSubstr("tile=x arch=sm_90a"));
}

TEST(Entry, ReadsBackWhatWasWritten) {
  const Entry entry = SampleEntry();
  const auto parsed = ParseEntry(SerializeEntry(entry));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(*parsed == entry);
  EXPECT_EQ(parsed->facts.dynamic_shared_bytes, 66560);
  EXPECT_EQ(parsed->key.options, entry.key.options);
}

TEST(Entry, AnEmptyPayloadAndNoOptionsReadBack) {
  Entry entry = SampleEntry();
  entry.payload.clear();
  entry.key.options.clear();
  const auto parsed = ParseEntry(SerializeEntry(entry));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(*parsed == entry);
}

TEST(Entry, CutAnywhereIsDataLoss) {
  const std::string bytes = SerializeEntry(SampleEntry());
  for (size_t kept = 0; kept < bytes.size(); ++kept) {
    // A copy of exactly that size, so that a sanitizer sees a read past it.
    const std::vector<char> cut(bytes.begin(), bytes.begin() + kept);
    const auto parsed = ParseEntry({cut.data(), cut.size()});
    ASSERT_TRUE(absl::IsDataLoss(parsed.status())) << "kept " << kept;
    ASSERT_THAT(std::string(parsed.status().message()), HasSubstr("at byte "));
  }
  EXPECT_TRUE(absl::IsDataLoss(ParseEntry(bytes + "x").status()));
}

TEST(Entry, AFlippedBitIsDataLoss) {
  std::string bytes = SerializeEntry(SampleEntry());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= 1 << bit % 8;
    ASSERT_TRUE(absl::IsDataLoss(ParseEntry(bytes).status())) << "bit " << bit;
    bytes[bit / 8] ^= 1 << bit % 8;
  }
  EXPECT_TRUE(ParseEntry(bytes).ok());
}

// Whoever writes a file can also write its digests: lengths are not to be
// trusted even where those match.
TEST(Entry, HostileLengthsWithGoodDigestsAreDataLoss) {
  const std::string good = SerializeEntry(SampleEntry());
  uint32_t fields_bytes = 0;
  std::memcpy(&fields_bytes, good.data() + 12, 4);
  const size_t digest_at = 24 + fields_bytes + kDigestBytes;
  for (size_t at = 24; at + 4 <= 24 + fields_bytes; ++at) {
    for (const uint32_t length : {0xffffffffu, 0x7fffffffu, fields_bytes}) {
      std::string bytes = good;
      std::memcpy(bytes.data() + at, &length, 4);
      bytes.replace(digest_at, kDigestBytes,
                    Sha256Bytes(absl::string_view(bytes).substr(0, digest_at)));
      const std::vector<char> copy(bytes.begin(), bytes.end());
      const auto parsed = ParseEntry({copy.data(), copy.size()});
      // A change inside a value may still parse, then to another entry.
      if (parsed.ok()) {
        ASSERT_FALSE(*parsed == SampleEntry()) << "byte " << at;
      } else {
        ASSERT_TRUE(absl::IsDataLoss(parsed.status()));
      }
    }
  }
}

TEST(Entry, AnotherSchemaIsRefused) {
  Entry entry = SampleEntry();
  entry.key.schema = kCacheSchema + 1;
  const auto parsed = ParseEntry(SerializeEntry(entry));
  ASSERT_TRUE(absl::IsDataLoss(parsed.status()));
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("schema 2"));
}

}  // namespace
}  // namespace kvforge
