#include "tools/bench/case_table.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvforge::bench {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> Names(const std::vector<std::string>& patterns) {
  const absl::StatusOr<std::vector<BenchCase>> cases = SelectCases(patterns);
  EXPECT_TRUE(cases.ok()) << cases.status();
  std::vector<std::string> names;
  if (!cases.ok()) return names;
  for (const BenchCase& what : *cases) names.push_back(what.Name());
  return names;
}

TEST(CaseTable, NamesAreUnique) {
  std::set<std::string> names;
  for (const BenchCase& what : AllCases()) {
    EXPECT_TRUE(names.insert(what.Name()).second) << what.Name();
  }
}

TEST(CaseTable, HasTheCasesThatTargetsAreSetFor) {
  EXPECT_THAT(Names({}),
              IsSupersetOf({"decode/e4m3_row/d128/g4/page16/b64/kv8192",
                            "decode/e4m3_row/d128/g8/page64/b256/kv8192",
                            "decode/e4m3_row/d128/g4/page16/b1/kv32768",
                            "decode/e4m3_row/d128/g4/page16/b64/kv1024/skew100",
                            "decode/e4m3_row/d128/g4/page16/b64/kv2608",
                            "decode/nvfp4_row/d128/g4/page16/b64/kv8192",
                            "decode/int8_row/d128/g4/page16/b1/kv1024",
                            "decode/e4m3_tensor/d128/g8/page64/b16/kv8192",
                            "decode/bf16/d128/g8/page64/b256/kv8192",
                            "store/e4m3_row/d128/page16/t65536",
                            "store/nvfp4_row/d128/page16/t64",
                            "extend/e4m3_row/d128/g4/page16/b1/q512/kv32768",
                            "extend/bf16/d256/g4/page64/b1/q8192/kv8192",
                            "launch/store", "launch/decode", "launch/extend",
                            "prepare/store/nvfp4_row", "prepare/extend/bf16"}));
}

TEST(CaseTable, SpecsAreServed) {
  for (const BenchCase& what : AllCases()) {
    for (const KernelSpec& spec : what.Specs()) {
      const absl::StatusOr<KernelSpec> parsed = ParseSpec(spec.Text());
      ASSERT_TRUE(parsed.ok()) << what.Name() << ": " << parsed.status();
      EXPECT_EQ(*parsed, spec);
    }
  }
}

TEST(CaseTable, ADecodeCaseNeedsTheStoreThatFills) {
  const std::vector<BenchCase> cases =
      *SelectCases({"decode/nvfp4_row/d128/g8/page64/b1/kv1024"});
  ASSERT_EQ(cases.size(), 1u);
  std::vector<std::string> specs;
  for (const KernelSpec& spec : cases[0].Specs()) specs.push_back(spec.Text());
  EXPECT_THAT(specs, ElementsAre("decode/nvfp4_row/d128/g8/page64/bf16",
                                 "store/nvfp4_row/d128/g1/page16/bf16"));
}

TEST(CaseTable, ASkewedCaseHasAsManyTokensAsTheEvenOne) {
  const std::vector<BenchCase> cases =
      *SelectCases({"decode/e4m3_row/d128/g4/page16/b64/kv1024/skew100",
                    "decode/e4m3_row/d128/g4/page16/b64/kv2608"});
  ASSERT_EQ(cases.size(), 2u);
  const std::vector<int> lens = cases[0].KvLens();
  EXPECT_EQ(lens.size(), 64u);
  EXPECT_EQ(lens[0], 102400);
  EXPECT_EQ(lens[63], 1024);
  EXPECT_EQ(cases[0].KvTokens(), 63 * 1024 + 102400);
  EXPECT_EQ(cases[1].KvTokens(), cases[0].KvTokens());
}

TEST(SelectCases, TakesAWholeNameABeginningOrAGlob) {
  EXPECT_THAT(Names({"store/e4m3_row/d128/page16/t64"}),
              ElementsAre("store/e4m3_row/d128/page16/t64"));
  EXPECT_THAT(Names({"launch"}),
              ElementsAre("launch/store", "launch/decode", "launch/extend"));
  EXPECT_THAT(Names({"store/*/t64"}),
              ElementsAre("store/e4m3_row/d128/page16/t64",
                          "store/nvfp4_row/d128/page16/t64"));
}

TEST(SelectCases, ABeginningEndsAtASlash) {
  // kv1024 is also how kv1024/skew100 begins, and no other.
  EXPECT_THAT(Names({"decode/e4m3_row/d128/g4/page16/b64/kv1024"}),
              ElementsAre("decode/e4m3_row/d128/g4/page16/b64/kv1024",
                          "decode/e4m3_row/d128/g4/page16/b64/kv1024/skew100"));
  EXPECT_FALSE(SelectCases({"decode/e4m3"}).ok());
}

TEST(SelectCases, ACaseNamedTwiceRunsOnceInTheOrderOfTheTable) {
  EXPECT_THAT(Names({"launch/extend", "launch/store", "launch/*"}),
              ElementsAre("launch/store", "launch/decode", "launch/extend"));
}

TEST(CaseTable, AKernelThatIsOnlyPreparedIsTheOnlyOneNeeded) {
  const std::vector<BenchCase> cases =
      *SelectCases({"prepare/decode/e4m3_row", "fetch/extend/bf16"});
  ASSERT_EQ(cases.size(), 2u);
  std::vector<std::string> specs;
  for (const BenchCase& what : cases) {
    for (const KernelSpec& spec : what.Specs()) specs.push_back(spec.Text());
  }
  EXPECT_THAT(specs, ElementsAre("decode/e4m3_row/d128/g4/page16/bf16",
                                 "extend/bf16/d128/g4/page16/bf16"));
}

TEST(SelectCases, SpecialiseRunsOnlyByName) {
  EXPECT_THAT(Names({}), Not(Contains(StartsWith("specialise"))));
  EXPECT_THAT(Names({}), Not(Contains(StartsWith("fetch"))));
  EXPECT_THAT(Names({"specialise"}), Contains("specialise/extend/e4m3_row"));
}

TEST(SelectCases, Fp8RunsOnlyByName) {
  EXPECT_THAT(Names({}), Not(Contains(StartsWith("extend-fp8"))));
  EXPECT_THAT(Names({"extend-fp8"}),
              Contains("extend-fp8/e4m3_row/d128/g4/page16/b1/q8192/kv8192"));
  const std::vector<BenchCase> cases = *SelectCases({"extend-fp8"});
  EXPECT_EQ(cases[0].Spec().Text(),
            "extend/e4m3_row/d128/g4/page16/bf16/compute=fp8");
}

TEST(SelectCases, RefusesWhatNamesNothing) {
  const auto cases = SelectCases({"launch", "decode/e9m9"});
  ASSERT_TRUE(absl::IsInvalidArgument(cases.status()));
  EXPECT_THAT(std::string(cases.status().message()),
              HasSubstr("no case is called 'decode/e9m9'"));
}

}  // namespace
}  // namespace kvforge::bench
