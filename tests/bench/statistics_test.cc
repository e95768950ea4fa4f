#include "tools/bench/statistics.h"

#include "gtest/gtest.h"
#include "tools/bench/timing.h"

namespace kvforge::bench {
namespace {

TEST(Summarise, MedianAndQuartilesOfAnOddNumber) {
  // Quartiles 2 and 4 of 1..5.
  const Summary summary = Summarise({5, 1, 4, 2, 3});
  EXPECT_DOUBLE_EQ(summary.median, 3);
  EXPECT_DOUBLE_EQ(summary.spread, 2.0 / 3);
  EXPECT_EQ(summary.samples, 5);
}

TEST(Summarise, InterpolatesBetweenSamples) {
  // Of 1, 2, 3, 10: median 2.5, quartiles 1.75 and 4.75.
  const Summary summary = Summarise({10, 3, 2, 1});
  EXPECT_DOUBLE_EQ(summary.median, 2.5);
  EXPECT_DOUBLE_EQ(summary.spread, 3.0 / 2.5);
}

TEST(Summarise, OneOutlierDoesNotSpread) {
  EXPECT_DOUBLE_EQ(Summarise({7, 7, 7, 7, 7, 7, 700}).spread, 0);
}

TEST(Summarise, OneSampleAndNone) {
  EXPECT_EQ(Summarise({4}), (Summary{4, 0, 1}));
  EXPECT_EQ(Summarise({}), Summary());
}

TEST(Compare, IsOldOverNewWithBothSpreads) {
  const Change change = Compare({12, 0.03, 9}, {10, 0.05, 9});
  EXPECT_DOUBLE_EQ(change.ratio, 1.2);
  EXPECT_DOUBLE_EQ(change.noise, 0.08);
  EXPECT_TRUE(change.significant());
}

TEST(Compare, WithinTheNoiseSaysNothing) {
  EXPECT_FALSE(Compare({10.5, 0.03, 9}, {10, 0.05, 9}).significant());
  EXPECT_FALSE(Compare({9.5, 0.03, 9}, {10, 0.05, 9}).significant());
  EXPECT_TRUE(Compare({9, 0.03, 9}, {10, 0.05, 9}).significant());
}

TEST(RowLaunches, CoverFourCachesWithinBounds) {
  constexpr int64_t kL2 = 60 << 20;
  // 240 MiB / 2 MiB.
  EXPECT_EQ(RowLaunches(2 << 20, kL2, 10), 120);
  EXPECT_EQ(RowLaunches(1 << 30, kL2, 300), 20);
  EXPECT_EQ(RowLaunches(1 << 10, kL2, 2), 256);
  // 20 ms of launches of 2 ms; no fewer than 5.
  EXPECT_EQ(RowLaunches(1 << 30, kL2, 2000), 10);
  EXPECT_EQ(RowLaunches(1 << 30, kL2, 60000), 5);
}

}  // namespace
}  // namespace kvforge::bench
