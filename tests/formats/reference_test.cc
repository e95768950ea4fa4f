// The oracle against recorded attention, and against inputs whose answer can
// be written down.
#include "kernels/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/formats/golden_case.h"

namespace kvforge {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

class GoldenAttention : public ::testing::TestWithParam<std::string> {};

// Both sides are float64 over the same rows; the record is rounded to f32 (half
// an ulp, 6e-8) and used given scales as f64 (their f32 rounding: 6e-8 each).
TEST_P(GoldenAttention, OutAndLseAgree) {
  const absl::StatusOr<GoldenCase> golden = LoadGoldenCase(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.status();
  const absl::StatusOr<ReferenceResult> result = AttendGoldenCase(*golden);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->out.size(), golden->out.size());
  ASSERT_EQ(result->lse.size(), golden->lse.size());
  constexpr double kRelative = 1e-6;
  const size_t width = golden->v.head_dim;
  for (size_t row = 0; row < golden->lse.size(); ++row) {
    double largest = 0;
    double error = 0;
    for (size_t i = row * width; i < (row + 1) * width; ++i) {
      largest = std::fmax(largest, std::fabs(golden->out[i]));
      ASSERT_FALSE(std::isnan(result->out[i]));
      error = std::fmax(error, std::fabs(result->out[i] - golden->out[i]));
    }
    EXPECT_LE(error, kRelative * largest) << "row " << row;
    if (std::isinf(golden->lse[row])) {
      EXPECT_EQ(result->lse[row], golden->lse[row]) << "row " << row;
    } else {
      EXPECT_NEAR(result->lse[row], golden->lse[row],
                  1e-6 + kRelative * std::fabs(golden->lse[row]))
          << "row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, GoldenAttention,
                         ::testing::ValuesIn(GoldenCasePaths()),
                         [](const auto& info) {
                           const size_t begin = info.param.rfind('/') + 1;
                           return info.param.substr(
                               begin, info.param.rfind('.') - begin);
                         });

TEST(GoldenAttention, EveryFeatureIsRecorded) {
  bool window = false, softcap = false, sinks = false, alibi = false;
  bool custom = false, sparse = false, full = false, no_keys = false;
  for (const std::string& path : GoldenCasePaths()) {
    const absl::StatusOr<GoldenCase> golden = LoadGoldenCase(path);
    ASSERT_TRUE(golden.ok()) << golden.status();
    window |= golden->window > 0;
    softcap |= golden->softcap > 0;
    sinks |= !golden->sinks.empty();
    alibi |= !golden->alibi_slopes.empty();
    custom |= !golden->custom_mask.empty();
    sparse |= golden->sparse_block > 0;
    full |= !golden->causal && golden->custom_mask.empty();
    for (int kv_len : golden->kv_lens) no_keys |= kv_len == 0;
  }
  EXPECT_TRUE(window && softcap && sinks && alibi && custom && sparse && full &&
              no_keys);
}

// One head of one element: v[j] = j + 1, q = 0, so every visible key weighs the
// same, out is the mean of the visible v and lse = ln(their number).
struct Uniform {
  ReferenceParams params;
  ReferenceSequence sequence;
  std::vector<double> q, k, v;

  Uniform(int q_len, int kv_len) {
    params.num_q_heads = params.num_kv_heads = 1;
    params.head_dim = params.v_head_dim = 1;
    sequence.q_len = q_len;
    sequence.kv_len = kv_len;
    q.assign(q_len, 0.0);
    k.assign(kv_len, 1.0);
    for (int j = 0; j < kv_len; ++j) v.push_back(j + 1);
  }
  ReferenceResult Run() {
    sequence.q = q;
    sequence.k = k;
    sequence.v = v;
    absl::StatusOr<ReferenceResult> result =
        ReferenceAttention(params, sequence);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ReferenceResult();
  }
};

TEST(Reference, CausalIsAlignedAtTheEnd) {
  Uniform c(2, 5);
  const ReferenceResult result = c.Run();
  EXPECT_DOUBLE_EQ(result.out[0], 2.5);  // keys 0..3: (1 + 2 + 3 + 4) / 4
  EXPECT_DOUBLE_EQ(result.out[1], 3.0);  // keys 0..4
  EXPECT_DOUBLE_EQ(result.lse[0], std::log(4.0));
}

TEST(Reference, WindowKeepsExactlyTheLastKeys) {
  Uniform c(1, 6);
  c.params.window = 4;
  EXPECT_DOUBLE_EQ(c.Run().out[0], 4.5);  // keys 2..5: (3 + 4 + 5 + 6) / 4
}

TEST(Reference, WindowWithoutCausalIsOneSided) {
  Uniform c(2, 4);  // query 0 is at position 2 and sees keys 2 and 3
  c.params.window = 1;
  c.params.causal = false;
  EXPECT_DOUBLE_EQ(c.Run().out[0], 3.5);
  EXPECT_DOUBLE_EQ(c.Run().out[1], 4.0);
}

TEST(Reference, MoreQueriesThanKeysLeaveRowsWithoutKeys) {
  Uniform c(3, 1);
  const ReferenceResult result = c.Run();
  EXPECT_EQ(result.out[0], 0.0);
  EXPECT_EQ(result.lse[0], -kInf);
  EXPECT_EQ(result.out[2], 1.0);
  EXPECT_EQ(result.lse[2], 0.0);
}

TEST(Reference, SinkJoinsTheDenominatorOnly) {
  Uniform c(1, 3);
  const std::vector<float> sinks = {std::log(3.0f)};
  c.params.sinks = sinks;
  const ReferenceResult result = c.Run();
  EXPECT_NEAR(result.out[0], 1.0, 1e-7);  // (1 + 2 + 3) / (3 + 3)
  EXPECT_NEAR(result.lse[0], std::log(6.0), 1e-7);
}

TEST(Reference, SinkIsTheLseOfARowWithoutKeys) {
  Uniform c(1, 0);
  const std::vector<float> sinks = {-2.5f};
  c.params.sinks = sinks;
  const ReferenceResult result = c.Run();
  EXPECT_EQ(result.out[0], 0.0);
  EXPECT_EQ(result.lse[0], -2.5);
}

TEST(Reference, HiddenKeysMayHoldAnything) {
  Uniform c(2, 2);
  c.k[1] = kNan;
  c.v[1] = kNan;
  const ReferenceResult result = c.Run();
  EXPECT_EQ(result.out[0], 1.0);  // sees key 0
  EXPECT_TRUE(std::isnan(result.out[1]));
}

TEST(Reference, FarLogitsKeepTheirValue) {
  Uniform c(1, 1);
  c.q[0] = 1;
  c.k[0] = -66855;
  const ReferenceResult result = c.Run();
  EXPECT_EQ(result.out[0], 1.0);
  EXPECT_EQ(result.lse[0], -66855.0);
}

TEST(Reference, SoftcapComesBeforeAlibi) {
  Uniform c(1, 2);
  const std::vector<float> slopes = {0.5f};
  c.params.alibi_slopes = slopes;
  c.params.softcap = 2;
  c.q[0] = 1;
  c.k = {1e4, 1e4};
  // Scores: 2 - 0.5 for key 0, 2 for key 1.
  EXPECT_NEAR(c.Run().lse[0], std::log(std::exp(1.5) + std::exp(2.0)), 1e-12);
}

TEST(Reference, SelectionAndWindowNarrowACustomMask) {
  Uniform c(1, 8);
  const std::vector<uint8_t> mask = {0b11101011};    // keys 0 1 3 5 6 7
  const std::vector<int32_t> selected = {3, -1, 1};  // keys 6 7 2 3
  c.sequence.custom_mask = mask;
  EXPECT_DOUBLE_EQ(c.Run().out[0], 28.0 / 6);  // 1 + 2 + 4 + 6 + 7 + 8
  c.params.sparse_block = 2;
  c.sequence.selected = selected;
  EXPECT_DOUBLE_EQ(c.Run().out[0], 19.0 / 3);  // 4 + 7 + 8
  c.params.window = 4;                         // keys 4..7
  EXPECT_DOUBLE_EQ(c.Run().out[0], 7.5);
}

TEST(Reference, GroupsShareTheirKvHead) {
  ReferenceParams params;
  params.num_q_heads = 6;
  params.num_kv_heads = 2;
  params.head_dim = params.v_head_dim = 1;
  ReferenceSequence sequence;
  sequence.q_len = sequence.kv_len = 1;
  const std::vector<double> q(6, 0.0), k = {1, 1}, v = {10, 20};
  sequence.q = q;
  sequence.k = k;
  sequence.v = v;
  const absl::StatusOr<ReferenceResult> result =
      ReferenceAttention(params, sequence);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->out, (std::vector<double>{10, 10, 10, 20, 20, 20}));
}

TEST(Reference, SizesThatDoNotFollowFromTheShapesAreRefused) {
  Uniform c(2, 3);
  c.sequence.q = c.q;
  c.sequence.k = absl::MakeConstSpan(c.k).subspan(1);
  c.sequence.v = c.v;
  const absl::Status status = ReferenceAttention(c.params, c.sequence).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("k has 2 elements; its shape takes 3"),
            absl::string_view::npos)
      << status;
}

// Splitting the keys and merging gives what one pass gives, a part without
// keys included.
TEST(ReferenceMerge, PartsMergeToTheWhole) {
  Uniform whole(1, 5);
  whole.q[0] = 1;
  whole.k = {0.5, -1, 2, 0.25, 1};
  const ReferenceResult expected = whole.Run();

  Uniform head(1, 2), tail(1, 3);
  head.q[0] = tail.q[0] = 1;
  head.k = {0.5, -1};
  tail.k = {2, 0.25, 1};
  tail.v = {3, 4, 5};
  const ReferenceResult a = head.Run(), b = tail.Run();
  const std::vector<double> out = {a.out[0], kNan, b.out[0]};
  const std::vector<double> lse = {a.lse[0], -kInf, b.lse[0]};
  const absl::StatusOr<ReferenceResult> merged =
      ReferenceMerge(3, 1, 1, out, lse);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_NEAR(merged->out[0], expected.out[0], 1e-12);
  EXPECT_NEAR(merged->lse[0], expected.lse[0], 1e-12);
}

TEST(ReferenceMerge, NoPartHasKeys) {
  const std::vector<double> out = {kNan, kNan}, lse = {-kInf, -kInf};
  const absl::StatusOr<ReferenceResult> merged =
      ReferenceMerge(2, 1, 1, out, lse);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->out[0], 0.0);
  EXPECT_EQ(merged->lse[0], -kInf);
}

}  // namespace
}  // namespace kvforge
