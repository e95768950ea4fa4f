// Where each scale of the cache goes: one numeric test for every row of the
// table of scale placements, each side alone beside a 16-bit one, in decode
// (one and several splits) and extend. Scales spread over what they vary over,
// so that a dropped, swapped or misplaced one is off by far more than the
// bound.
#include <cmath>

#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

struct Placement {
  const char* row;     // what the scale varies over, and where it goes
  const char* format;  // that has such a scale
};

constexpr Placement kKeyPlacements[] = {
    {"NothingToTheSoftmaxScale", "e4m3_tensor"},
    {"HeadToTheSoftmaxScale", "e4m3_head"},
    {"TokenToTheScoresPerColumn", "e4m3_row"},
    {"ChannelToQBeforeTheDot", "e4m3_channel"},
    {"TokenAndE4m3BlockToTheOperand", "nvfp4"},
    {"TokenAndUe8m0BlockToThePartialDot", "mxfp8"},
    {"TokenAdditiveToTheScores", "int4_row"},
};
constexpr Placement kValuePlacements[] = {
    {"NothingToTheOutput", "e4m3_tensor"},
    {"HeadToTheOutput", "e4m3_head"},
    {"TokenToPBeforeItIsNarrowed", "e4m3_row"},
    {"ChannelToTheOutputPerColumn", "e4m3_channel"},
    {"TokenAndE4m3BlockToTheOperand", "nvfp4"},
    {"TokenAndUe8m0BlockToPPerBlock", "mxfp8"},
    {"TokenAdditiveToTheOutput", "int4_row"},
};

// Rows of some octaves from token to token, blocks from block to block, never
// around 0: a minimum counts.
float Spread(int64_t token, int head, int d) {
  const float octaves = static_cast<float>((token * 5 + head) % 4 + d / 16 % 3);
  return std::exp2(octaves - 3) *
         (0.5f + static_cast<float>((token * 7 + d * 5) % 19) / 16);
}

CaseOptions Options(const Placement& placement) {
  CaseOptions options;
  options.name = placement.row;
  options.format = options.v_format = "bf16";
  options.head_dim = 96;
  options.v_head_dim = 64;
  options.num_q_heads = 8;
  options.num_kv_heads = 2;
  options.q_lens = {1, 4, 16};  // what decode can have
  options.kv_lens = {37, 150, 70};
  options.query_type = DType::kF16;
  return options;
}

class KeyScale : public ::testing::TestWithParam<Placement> {};

TEST_P(KeyScale, IsApplied) {
  CaseOptions options = Options(GetParam());
  options.format = GetParam().format;
  options.k = Spread;
  options.sm_scale = 0.02f;
  options.k_scale = 0.013f;
  ExpectCaseRight(options);
  // Three q heads a kv head: a tile begins inside a token.
  options.num_q_heads = 6;
  options.query_type = DType::kBf16;
  ExpectCaseRight(options, 2, 1);
}

INSTANTIATE_TEST_SUITE_P(Placements, KeyScale,
                         ::testing::ValuesIn(kKeyPlacements),
                         [](const auto& info) { return info.param.row; });

class ValueScale : public ::testing::TestWithParam<Placement> {};

TEST_P(ValueScale, IsApplied) {
  CaseOptions options = Options(GetParam());
  options.v_format = GetParam().format;
  options.v = Spread;
  options.v_scale = 0.017f;
  ExpectCaseRight(options);
  options.v_head_dim = 512;  // warps share a row's columns in extend
  options.out_type = DType::kF32;
  ExpectCaseRight(options, 2, 1);
}

INSTANTIATE_TEST_SUITE_P(Placements, ValueScale,
                         ::testing::ValuesIn(kValuePlacements),
                         [](const auto& info) { return info.param.row; });

}  // namespace
}  // namespace kvforge
