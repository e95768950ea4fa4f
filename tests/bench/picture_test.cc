#include "tools/bench/picture.h"

#include <regex>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvforge::bench {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

CaseResult Point(const std::string& name, int64_t bytes, double flops,
                 double us) {
  CaseResult result;
  result.name = name;
  result.row = {us, 0.01, 9};
  result.bytes = bytes;
  result.flops = flops;
  return result;
}

Report Sample() {
  Report report;
  report.gpu = "A & B <\"C\">";
  report.ceilings = {4500, 4250, 600, {{1 << 21, 900}, {1 << 30, 4400}}, ""};
  report.results = {Point("decode/e4m3_row/x", 1000000000, 8e9, 250),
                    Point("decode/bf16/y", 2000000, 16e6, 9),
                    Point("store/nvfp4_row/z", 400000000, 0, 100)};
  return report;
}

// Every tag is closed in order, and text holds no bare & or <.
void ExpectWellFormed(const std::string& svg) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z]+)([^<>]*?)(/?)>");
  std::string between;
  auto begin = svg.cbegin();
  for (std::sregex_iterator it(svg.begin(), svg.end(), tag), end; it != end;
       ++it) {
    between += std::string(begin, svg.cbegin() + it->position());
    begin = svg.cbegin() + it->position() + it->length();
    if ((*it)[1] == "/") {
      ASSERT_FALSE(open.empty()) << it->str();
      EXPECT_EQ(open.back(), (*it)[2]);
      open.pop_back();
    } else if ((*it)[4] != "/") {
      open.push_back((*it)[2]);
    }
  }
  EXPECT_TRUE(open.empty()) << open.back();
  EXPECT_THAT(between, Not(HasSubstr("<")));
  EXPECT_FALSE(
      std::regex_search(between, std::regex("&(?!amp;|lt;|gt;|quot;)")));
}

TEST(Picture, IsWellFormedWhateverTheNames) {
  const std::string svg = ToSvg(Sample());
  ExpectWellFormed(svg);
  EXPECT_TRUE(absl::StartsWith(svg, "<svg xmlns="));
  EXPECT_THAT(svg, HasSubstr("A &amp; B &lt;&quot;C&quot;&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(Picture, OfNothingIsWellFormedToo) {
  const std::string svg = ToSvg(Report());
  ExpectWellFormed(svg);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(Picture, NamesEachPointWithItsFigures) {
  const std::string svg = ToSvg(Sample());
  // 1 GB in 250 us.
  EXPECT_THAT(svg, HasSubstr("<title>decode/e4m3_row/x: 250.00 us, 4000 GB/s, "
                             "32.0 TFLOP/s</title>"));
  EXPECT_THAT(svg, HasSubstr("store/nvfp4_row/z: 100.00 us, 4000 GB/s"));
  EXPECT_THAT(svg, ContainsRegex("points=\"[0-9.]+,[0-9.]+ [0-9.]+,[0-9.]+\""));
}

TEST(Picture, ExtendIsNoPointOfTheBandwidth) {
  Report report;
  report.results = {Point("extend/bf16/x", 1000000, 8e9, 20)};
  const std::string svg = ToSvg(report);
  EXPECT_NE(svg.find("extend/bf16/x"), std::string::npos);
  EXPECT_EQ(svg.find("extend/bf16/x"), svg.rfind("extend/bf16/x"));
}

TEST(Picture, AFasterCaseIsHigherAndALargerOneFurtherRight) {
  Report report;
  report.ceilings.read_gb_per_s = 5000;
  report.results = {Point("decode/bf16/slow", 1000000, 0, 1),
                    Point("decode/bf16/fast", 400000000, 0, 100)};
  const std::string svg = ToSvg(report);
  const std::regex circle(
      "<circle cx=\"([0-9.]+)\" cy=\"([0-9.]+)\"[^>]*><title>([^:]*)");
  std::vector<std::pair<double, double>> points;
  for (std::sregex_iterator it(svg.begin(), svg.end(), circle), end; it != end;
       ++it) {
    points.push_back({std::stod((*it)[1]), std::stod((*it)[2])});
  }
  ASSERT_EQ(points.size(), 2u);
  EXPECT_LT(points[0].first, points[1].first);
  EXPECT_GT(points[0].second, points[1].second);  // y grows downwards
  // Linear from 0 at 470 to 5,000 at 50: 1,000 GB/s lies at 470 - 420 / 5.
  EXPECT_NEAR(points[0].second, 386, 0.1);
  EXPECT_NEAR(points[1].second, 134, 0.1);
}

}  // namespace
}  // namespace kvforge::bench
