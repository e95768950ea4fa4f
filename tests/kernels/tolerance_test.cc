#include "tools/tolerance.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

TEST(HalfUlp, OfEachType) {
  EXPECT_EQ(HalfUlp(DType::kBf16, 1.0), 0x1p-8);
  EXPECT_EQ(HalfUlp(DType::kBf16, 1.99), 0x1p-8);
  EXPECT_EQ(HalfUlp(DType::kBf16, -2.0), 0x1p-7);
  EXPECT_EQ(HalfUlp(DType::kF16, 1.0), 0x1p-11);
  EXPECT_EQ(HalfUlp(DType::kF16, 0x1p-20), 0x1p-25);  // subnormal
  EXPECT_EQ(HalfUlp(DType::kF32, 1.0), 0x1p-24);
  EXPECT_EQ(HalfUlp(DType::kF16, 0), 0x1p-25);
}

// One row of one head, f32 out: 64 values of which the largest is 2.
class Compare : public ::testing::Test {
 protected:
  Compare() {
    CaseOptions options;
    options.name = "row";
    options.format = "e4m3_row";
    options.head_dim = 64;
    options.num_q_heads = options.num_kv_heads = 1;
    options.q_lens = {1};
    options.kv_lens = {1};
    options.out_type = DType::kF32;
    problem_ = Generated(options);
    problem_.out.assign(64, 0.5f);
    problem_.out[3] = -2;
    problem_.lse = {10};
    out_ = problem_.out;
    lse_ = problem_.lse;
  }

  ErrorReport Report(bool padding_kept = true) const {
    std::vector<uint8_t> bytes(out_.size() * 4);
    std::memcpy(bytes.data(), out_.data(), bytes.size());
    return CompareAttention(problem_, bytes, lse_, padding_kept);
  }

  AttentionCase problem_;
  std::vector<float> out_, lse_;
};

TEST_F(Compare, BoundIsAThousandthOfTheRowsMaximum) {
  EXPECT_EQ(Report().out_ratio, 0);
  out_[9] += 1.9e-3f;  // of 2e-3
  EXPECT_TRUE(Report().ok());
  EXPECT_NEAR(Report().out_ratio, 0.95, 1e-3);
  out_[9] += 0.2e-3f;
  EXPECT_FALSE(Report().ok());
  EXPECT_EQ(Report().worst_out.substr(0, 25), "row 0 head 0 element 9: 0");
  // Four times as much with bf16 operands.
  problem_.v.format = *FindFormat("bf16");
  EXPECT_NEAR(Report().out_ratio, 2.1e-3 / 8e-3, 1e-3);
}

TEST_F(Compare, LseBoundGrowsWithLse) {
  lse_[0] = 10.001f;  // of 1e-3 + 1e-4
  EXPECT_TRUE(Report().ok());
  lse_[0] = 10.0012f;
  EXPECT_FALSE(Report().ok());
}

TEST_F(Compare, NanInfAndEmptyRows) {
  out_[0] = std::nanf("");
  EXPECT_TRUE(std::isinf(Report().out_ratio));
  out_ = problem_.out;
  lse_[0] = std::nanf("");
  EXPECT_TRUE(std::isinf(Report().lse_ratio));
  // No visible key: exactly 0 and -inf.
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  problem_.out.assign(64, 0);
  problem_.lse[0] = lse_[0] = -kInfinity;
  out_ = problem_.out;
  EXPECT_TRUE(Report().ok());
  lse_[0] = -1e30f;
  EXPECT_FALSE(Report().ok());
  lse_[0] = -kInfinity;
  out_[5] = 1e-30f;
  EXPECT_FALSE(Report().ok());
}

TEST_F(Compare, PaddingMustStay) {
  problem_.q_indptr = {0, 0};
  EXPECT_FALSE(Report(/*padding_kept=*/true).ok());
  EXPECT_TRUE(Report(/*padding_kept=*/false).ok());
}

}  // namespace
}  // namespace kvforge
