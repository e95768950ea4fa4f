// Shapes, candidates and the winners that are shipped.
#include "runtime/tune/winners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "runtime/tune/fingerprint.h"
#include "runtime/tune/shape.h"
#include "tests/runtime/temporary_folder.h"

namespace kvforge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TuneRecord Timed(const char* device, const char* spec, const char* shape,
                 const char* candidate, double median_us) {
  TuneRecord record;
  record.key = {device, spec, shape, candidate, "digest"};
  record.gpu = "sm_90";
  record.verdict = TuneVerdict::kTimed;
  record.timing = {median_us, 0.02, 9};
  return record;
}

TEST(TuneShape, RoundTripsAndRoundsUp) {
  const absl::StatusOr<TuneShape> shape = ParseShape("b48/h8/q1/kv8192");
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->Text(), "b48/h8/q1/kv8192");
  EXPECT_EQ(shape->Bucket().Text(), "b64/h8/q1/kv8192");
  EXPECT_EQ((TuneShape{1, 5, 3, 8193}).Bucket().Text(), "b1/h8/q4/kv16384");
  for (const char* text :
       {"", "b1", "b1/h8/q1", "b0/h8/q1/kv1", "b1/h8/q2/kv1", "1/8/1/1",
        "b1/h8/q1/kv1/x", "b-1/h8/q1/kv1", "b99999999/h8/q1/kv1"}) {
    EXPECT_EQ(ParseShape(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(TuneCandidate, RoundTrips) {
  for (const char* text : {"8x128/4/8", "8x128/4/8 grid=264x4"}) {
    const absl::StatusOr<CandidateParts> parts = ParseCandidate(text);
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_EQ(CandidateText(*parts), text);
  }
  for (const char* text : {"", "8x128/4/8 264x4", "8x128/4/8 grid=264",
                           "8x128/4/8 grid=0x1", "8x128/4/8 grid=1x1 x"}) {
    EXPECT_FALSE(ParseCandidate(text).ok()) << text;
  }
}

TEST(TuneFingerprint, SeparatesModelsAndSlices) {
  DeviceLimits limits;
  limits.sm_count = 132;
  limits.shared_bytes_opt_in = 232448;
  limits.shared_bytes_per_sm = 233472;
  limits.shared_bytes_reserved = 1024;
  limits.threads_per_sm = 2048;
  limits.registers_per_sm = 65536;
  limits.l2_bytes = 50 << 20;
  limits.memory_bytes = int64_t{140} << 30;
  EXPECT_EQ(DeviceFingerprint("NVIDIA H200", 90, limits),
            "NVIDIA H200 sm_90 132 SMs 232448+1024/233472 shared 65536 "
            "registers 2048 threads 50 MiB L2 140 GiB");
  DeviceLimits slice = limits;
  slice.sm_count = 60;
  EXPECT_NE(DeviceFingerprint("NVIDIA H200", 90, limits),
            DeviceFingerprint("NVIDIA H200", 90, slice));
  EXPECT_NE(DeviceFingerprint("NVIDIA H200", 90, limits),
            DeviceFingerprint("NVIDIA H100", 90, limits));
}

// Two shapes. b is 10 % and 0 % off the best, a 0 % and 60 %, c was timed in
// one shape only, and a grid other than the library's counts for its shape
// only.
TEST(Winners, OneAShapeAndOneForAnyShape) {
  std::vector<TuneRecord> records = {
      Timed("d", "s", "x", "a", 100), Timed("d", "s", "x", "b", 110),
      Timed("d", "s", "x", "c", 105), Timed("d", "s", "y", "a", 160),
      Timed("d", "s", "y", "b", 100), Timed("d", "s", "y", "b grid=8x2", 90),
      Timed("e", "s", "x", "c", 1)};
  records.push_back(Timed("d", "s", "x", "wrong", 1));
  records.back().verdict = TuneVerdict::kWrong;
  const Winners winners = WinnersOf(records);
  EXPECT_EQ(winners.Find("d", "s", "x")->candidate, "a");
  EXPECT_EQ(winners.Find("d", "s", "y")->candidate, "b grid=8x2");
  EXPECT_EQ(winners.Find("d", "s", "")->candidate, "b");
  EXPECT_EQ(winners.Find("e", "s", "")->candidate, "c");
  EXPECT_EQ(winners.Find("f", "s", ""), nullptr);
  EXPECT_EQ(winners.Find("d", "s", "z"), nullptr);
  EXPECT_THAT(winners.TilesFor("sm_90", "s"), ElementsAre("a", "b", "c"));
  std::reverse(records.begin(), records.end());
  EXPECT_EQ(WinnersOf(records).ToJson(), winners.ToJson());
}

TEST(Winners, RoundTripThroughTheFile) {
  const TemporaryFolder folder;
  const Winners winners = WinnersOf({Timed("d", "s", "x", "a", 100)});
  const std::string path = folder.Path("w.json");
  std::ofstream(path) << winners.ToJson();
  const absl::StatusOr<Winners> read = Winners::Read(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->all(), winners.all());
}

TEST(Winners, OtherFilesAreRefusedByName) {
  const TemporaryFolder folder;
  EXPECT_EQ(Winners::Read(folder.Path("none")).status().code(),
            absl::StatusCode::kNotFound);
  const std::string path = folder.Path("w.json");
  for (const auto& [text, what] :
       {std::pair{"", "not JSON"},
        {"{}", "not JSON with"},
        {"[1]", "not JSON with"},
        {"{\"kvforge_winners\": 2}", "not JSON with"},
        {"SQLite format 3", "the tuning table itself"},
        {"{\"kvforge_winners\": 1, \"winners\": [{}]}", "has no text"},
        {"{\"kvforge_winners\": 1, \"winners\": 3}", "has no text"}}) {
    std::ofstream(path) << text;
    const absl::Status status = Winners::Read(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("export it again"));
  }
}

TEST(TuneWinners, ThoseShippedCanBeReadAndNameTilesOfTheirGpu) {
  const auto winners = Winners::Read(KVFORGE_SHIPPED_WINNERS);
  ASSERT_TRUE(winners.ok()) << winners.status();
  EXPECT_GE(winners->all().size(), 20u);
  for (const auto& [key, winner] : winners->all()) {
    EXPECT_EQ(winner.gpu, "sm_90");
    EXPECT_THAT(winner.device, HasSubstr("H200"));
    EXPECT_TRUE(ParseCandidate(winner.candidate).ok()) << winner.candidate;
    EXPECT_EQ(winner.version.size(), 64u);
    EXPECT_THAT(winners->TilesFor("sm_90", winner.spec),
                ::testing::Not(::testing::IsEmpty()));
  }
}

}  // namespace
}  // namespace kvforge
