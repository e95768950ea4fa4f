#include "compiler/formats/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

struct RowCase {
  const char* format;
  int head_dim;
  int row_bytes;  // by hand, from the table of formats
};

class FormatRowBytes : public ::testing::TestWithParam<RowCase> {};

TEST_P(FormatRowBytes, CountsCodesAndSidecars) {
  const absl::StatusOr<const KvFormat*> format = FindFormat(GetParam().format);
  ASSERT_TRUE(format.ok()) << format.status();
  EXPECT_EQ((*format)->RowBytes(GetParam().head_dim), GetParam().row_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Format, FormatRowBytes,
    ::testing::Values(RowCase{"bf16", 128, 256},         // 2 D
                      RowCase{"f16", 80, 160},           // 2 D
                      RowCase{"e4m3_tensor", 128, 128},  // D
                      RowCase{"e4m3_head", 96, 96},      // D
                      RowCase{"e4m3_channel", 80, 80},   // D
                      RowCase{"e4m3_row", 128, 132},     // D + 4
                      RowCase{"e5m2_tensor", 64, 64},    // D
                      RowCase{"int8_row", 96, 100},      // D + 4
                      RowCase{"int4_row", 96, 56},       // D/2 + 8
                      RowCase{"nvfp4_row", 128, 76},     // 64 + 8 + 4
                      RowCase{"nvfp4", 112, 63},         // 56 + 7
                      RowCase{"mxfp8", 192, 198},        // 192 + 6
                      RowCase{"mxfp4", 64, 34}),         // 32 + 2
    [](const auto& info) { return std::string(info.param.format); });

TEST(Format, UnknownNameListsTheFormats) {
  const absl::Status status = FindFormat("e4m3").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "format 'e4m3' does not exist; the formats are bf16, f16, "
            "e4m3_tensor, e4m3_head, e4m3_channel, e4m3_row, e5m2_tensor, "
            "int8_row, int4_row, nvfp4_row, nvfp4, mxfp8, mxfp4; kernels are "
            "generated "
            "for bf16, f16, e4m3_tensor, e4m3_head, e4m3_channel, e4m3_row, "
            "e5m2_tensor, "
            "int8_row, int4_row, nvfp4_row, nvfp4, mxfp8, mxfp4: use one of "
            "these");
}

TEST(Format, EachTakesEachSupportedHeadDimOfWholeBlocks) {
  for (const KvFormat& format : kFormats) {
    for (int head_dim : {64, 80, 96, 112, 128, 192, 256, 512}) {
      const bool whole = format.block == 0 || head_dim % format.block == 0;
      EXPECT_EQ(CheckFormat(format, head_dim).ok(), whole)
          << format.name << " at " << head_dim;
    }
  }
}

TEST(Format, OneThatIsNotServedIsRefusedByName) {
  KvFormat format = kFormats[0];
  format.served = false;
  const absl::Status status = CheckFormat(format, 64);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("bf16 is named but not served in this version"));
}

TEST(Format, OtherHeadDimsSayWhatToPadTo) {
  const absl::StatusOr<const KvFormat*> format = FindFormat("e4m3_row");
  ASSERT_TRUE(format.ok());
  struct Case {
    int head_dim;
    const char* advice;
  };
  for (const Case& c : {Case{72, "zero-pad q, k and v to 80"},
                        Case{16, "zero-pad q, k and v to 64"},
                        Case{264, "zero-pad q, k and v to 512"},
                        Case{0, "use one of these head_dims"},
                        Case{-64, "use one of these head_dims"},
                        Case{576, "use one of these head_dims"}}) {
    const absl::Status status = CheckFormat(**format, c.head_dim);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.advice));
  }
}

TEST(Format, HeadDimHasWholeBlocks) {
  const absl::StatusOr<const KvFormat*> mx = FindFormat("mxfp8");
  ASSERT_TRUE(mx.ok());
  EXPECT_TRUE(CheckFormat(**mx, 96).ok());
  const absl::Status status = CheckFormat(**mx, 80);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("multiples of 32; zero-pad q, k and v to 96"));
}

TEST(Format, ElementNamesAreDistinct) {
  EXPECT_EQ(ElementName(Element::kE4m3), "e4m3");
  EXPECT_EQ(ElementName(Element::kE2m1), "e2m1");
  EXPECT_EQ(ElementName(Element::kUint4), "uint4");
}

}  // namespace
}  // namespace kvforge
