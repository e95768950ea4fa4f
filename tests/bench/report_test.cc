#include "tools/bench/report.h"

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvforge::bench {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

CaseResult Result(const std::string& name, double row_us, double spread) {
  CaseResult result;
  result.name = name;
  result.one = {row_us + 1, 2 * spread, 31};
  result.row = {row_us, spread, 9};
  result.bytes = 4000000;
  result.flops = 8000000;
  result.accuracy = 0.0025;
  result.registers = 168;
  result.shared_bytes = 204288;
  result.detail = "splits 4";
  return result;
}

Report Sample() {
  Report report;
  report.gpu = "NVIDIA \"H200\"";
  report.driver_cuda_version = 13000;
  report.measured_at = "2026-01-02T03:04:05Z";
  report.ceilings = {4500, 4250, 600, {{1 << 21, 900}, {1 << 30, 4400}}, ""};
  report.results = {
      Result("decode/e4m3_row/d128/g4/page16/b64/kv1024/skew100", 2.5, 0.01),
      Result("decode/e4m3_row/d128/g4/page16/b64/kv2608", 2, 0.01),
      Result("store/e4m3_row/d128/page16/t64", 1, 0.02)};
  report.results[2].accuracy = 0;
  CaseResult failed;
  failed.name = "extend/bf16/d128/g4/page16/b1/q512/kv32768";
  failed.error = "no such kernel in the cache";
  report.results.push_back(failed);
  return report;
}

TEST(ReportJson, RoundTrips) {
  const Report report = Sample();
  const absl::StatusOr<Report> read = ReportFromJson(ToJson(report));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->gpu, report.gpu);
  EXPECT_EQ(read->driver_cuda_version, 13000);
  EXPECT_EQ(read->measured_at, report.measured_at);
  EXPECT_EQ(read->ceilings.read_gb_per_s, 4500);
  EXPECT_EQ(read->ceilings.copy_gb_per_s, 4250);
  EXPECT_EQ(read->ceilings.mma_tflop_per_s, 600);
  ASSERT_EQ(read->ceilings.stream.size(), 2u);
  EXPECT_EQ(read->ceilings.stream[1].bytes, 1 << 30);
  EXPECT_EQ(read->ceilings.stream[1].gb_per_s, 4400);
  EXPECT_EQ(read->results, report.results);
  EXPECT_EQ(ToJson(*read), ToJson(report));
}

TEST(ReportJson, RefusesWhatItDidNotWrite) {
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string("{}"),
        absl::StrReplaceAll(ToJson(Sample()), {{"\"flops\"", "\"flips\""}}),
        absl::StrReplaceAll(ToJson(Sample()), {{"204288", "\"204288\""}})}) {
    const absl::StatusOr<Report> read = ReportFromJson(text);
    ASSERT_TRUE(absl::IsInvalidArgument(read.status())) << text;
    EXPECT_THAT(std::string(read.status().message()),
                HasSubstr("no report that `kvforge bench --json` wrote"));
  }
  const absl::StatusOr<Report> newer = ReportFromJson(absl::StrReplaceAll(
      ToJson(Sample()), {{"\"kvforge_bench\": 1", "\"kvforge_bench\": 2"}}));
  ASSERT_TRUE(absl::IsInvalidArgument(newer.status()));
  EXPECT_THAT(std::string(newer.status().message()), HasSubstr("version 2"));
}

TEST(ReportTable, HoldsExtendToTheMatrixCeiling) {
  Report report;
  report.ceilings.mma_tflop_per_s = 16;
  report.results = {Result("extend/bf16/x", 2, 0.01)};
  EXPECT_THAT(ToTable(report), ContainsRegex("2000 +0.250 +4.0 "));
}

TEST(ReportTable, HoldsDecodeToTheReadAndStoreToTheCopyCeiling) {
  const std::string table = ToTable(Sample());
  // 4 MB in 2 us = 2,000 GB/s = 0.444 of 4,500; 8 Mflop in 2 us = 4 TFLOP/s.
  EXPECT_THAT(table, ContainsRegex("kv2608 +3.00 +2.00 +1.0% +2000 +0.444 +4.0 "
                                   "+2.5e-03 +168 +204288 +0 +splits 4\n"));
  // 4 MB in 1 us = 4,000 GB/s = 0.941 of 4,250.
  EXPECT_THAT(table, ContainsRegex("t64 +2.00 +1.00 +2.0% +4000 +0.941 +8.0 "
                                   "+exact "));
}

TEST(ReportTable, SaysHowASkewedBatchStandsAndWhatWasNotMeasured) {
  const std::string table = ToTable(Sample());
  EXPECT_THAT(table, HasSubstr("skew100 takes 1.25 of the time of decode"));
  EXPECT_THAT(table, HasSubstr("kv32768: no such kernel in the cache\n"));
  EXPECT_THAT(table, Not(HasSubstr("was not measured")));
  Report report = Sample();
  report.ceilings.missing = "no JIT";
  EXPECT_THAT(ToTable(report),
              HasSubstr("a ceiling of 0 was not measured: no JIT\n"));
}

TEST(ReportTable, PrepareHasATableOfItsOwn) {
  Report report;
  report.results = {Result("prepare/store/bf16", 300, 0.01)};
  report.results[0].one.median = 1500;
  const std::string table = ToTable(report);
  EXPECT_THAT(table, ContainsRegex("case +ready ms +of it read ms"));
  EXPECT_THAT(table, ContainsRegex("prepare/store/bf16 +1.500 +0.300 "));
  EXPECT_THAT(table, Not(HasSubstr("of ceiling")));
}

TEST(ReportTable, LaunchAndSpecialiseHaveTablesOfTheirOwn) {
  Report report;
  report.results = {Result("launch/store", 1.75, 0.01),
                    Result("specialise/decode/bf16", 250000, 0.01)};
  report.results[1].one.median = 1500;
  const std::string table = ToTable(report);
  EXPECT_THAT(table, ContainsRegex("case +call us +bare us"));
  EXPECT_THAT(table, ContainsRegex("launch/store +2.75 +1.75 "));
  EXPECT_THAT(table, ContainsRegex("case +text ms +cubin ms"));
  EXPECT_THAT(table, ContainsRegex("decode/bf16 +1.50 +250 "));
  EXPECT_THAT(table, Not(HasSubstr("of ceiling")));
}

TEST(CompareReports, SaysFasterSlowerOrWithinNoise) {
  Report before;
  before.gpu = "A";
  before.results = {Result("decode/a", 12, 0.01), Result("decode/b", 10, 0.01),
                    Result("decode/c", 10, 0.03), Result("decode/old", 1, 0)};
  Report after;
  after.gpu = "B";
  after.results = {Result("decode/a", 10, 0.01), Result("decode/b", 12.5, 0.01),
                   Result("decode/c", 10.5, 0.03), Result("decode/new", 1, 0)};
  const std::string text = CompareReports(before, after);
  EXPECT_THAT(text,
              ContainsRegex("decode/a +12.00 +10.00 +1.200x +2.0% +faster\n"));
  EXPECT_THAT(text,
              ContainsRegex("decode/b +10.00 +12.50 +0.800x +2.0% +slower\n"));
  EXPECT_THAT(text, ContainsRegex(
                        "decode/c +10.00 +10.50 +0.952x +6.0% +within noise"));
  EXPECT_THAT(text, HasSubstr("decode/new: measured in only one run\n"));
  EXPECT_THAT(text, HasSubstr("decode/old: not measured now\n"));
  EXPECT_THAT(text, HasSubstr("different GPUs: A and B\n"));
}

TEST(CompareReports, OfALaunchCaseTheCallCounts) {
  Report before;
  before.results = {Result("launch/store", 4, 0)};  // the call: 5
  Report after;
  after.results = {Result("launch/store", 4, 0)};
  after.results[0].one.median = 2.5;
  EXPECT_THAT(CompareReports(before, after),
              ContainsRegex("launch/store +5.00 +2.50 +2.000x"));
}

TEST(CompareReports, OfAPrepareCaseTheWholeCounts) {
  Report before;
  before.results = {Result("prepare/store/bf16", 4, 0)};  // the whole: 5
  Report after = before;
  after.results[0].one.median = 2.5;
  EXPECT_THAT(CompareReports(before, after),
              ContainsRegex("prepare/store/bf16 +5.00 +2.50 +2.000x"));
}

}  // namespace
}  // namespace kvforge::bench
