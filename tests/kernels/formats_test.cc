// Every cache format through store, extend, decode and merge on the CPU, alone
// and as K beside another V.
#include "absl/strings/str_cat.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

CaseOptions Options(const KvFormat& format, int head_dim, int page_size,
                    std::vector<int> q_lens, std::vector<int> kv_lens) {
  CaseOptions options;
  options.format = std::string(format.name);
  options.name = absl::StrCat(options.format, " d", head_dim);
  options.head_dim = head_dim;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.page_size = page_size;
  options.q_lens = std::move(q_lens);
  options.kv_lens = std::move(kv_lens);
  return options;
}

constexpr int kCount = static_cast<int>(std::size(kFormats));

class Formats : public ::testing::TestWithParam<int> {
 protected:
  const KvFormat& format_ = kFormats[GetParam()];
  const int layout_ = GetParam() % static_cast<int>(std::size(kCaseLayouts));
};

TEST_P(Formats, FullLanes) {
  ExpectCaseRight(Options(format_, 64, 16, {1, 3, 17}, {40, 5, 90}), layout_,
                  1);
}

// 96 of 128 values, or 80: lanes past the row's end hold none of their own.
TEST_P(Formats, LanesPastTheRowsEnd) {
  const int head_dim = format_.block == 32 ? 96 : 80;
  CaseOptions options = Options(format_, head_dim, 16, {1, 3, 17}, {40, 5, 90});
  // No value is near 0, and the last lanes' are not the largest.
  options.k = options.v = [](int64_t token, int head, int d) {
    return 1.0f + static_cast<float>((token * 7 + head * 3 + d * 5) % 23) / 16;
  };
  ExpectCaseRight(options, layout_, 1);
}

TEST_P(Formats, BesideTheNext) {
  CaseOptions options = Options(format_, 96, 48, {1, 3}, {40, 60});
  options.v_format = std::string(kFormats[(GetParam() + 1) % kCount].name);
  ExpectCaseRight(options, layout_, 1);
}

TEST_P(Formats, BesideTheOneBeforeAtAnotherHeadDim) {
  CaseOptions options = Options(format_, 192, 16, {1, 3}, {40, 60});
  options.v_head_dim = 128;
  options.v_format =
      std::string(kFormats[(GetParam() + kCount - 1) % kCount].name);
  ExpectCaseRight(options, layout_, 1);
}

INSTANTIATE_TEST_SUITE_P(All, Formats, ::testing::Range(0, kCount),
                         [](const auto& info) {
                           return std::string(kFormats[info.param].name);
                         });

}  // namespace
}  // namespace kvforge
