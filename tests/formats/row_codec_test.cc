// Row codecs against recorded rows, bit for bit, and the rows no random data
// has: NaN, Inf, zero, tiny blocks.
#include "compiler/formats/row_codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "compiler/formats/codec.h"
#include "tests/formats/golden_case.h"

namespace kvforge {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

const KvFormat& Format(const char* name) { return **FindFormat(name); }

// Checks all rows of a side and returns how many.
int ExpectStoredRows(const GoldenCase& golden, const GoldenSide& side) {
  int failures = 0;
  for (size_t row = 0; row < side.rows.size(); ++row) {
    const float given =
        side.GivenScaleOf(static_cast<int>(row) % golden.num_kv_heads);
    const QuantizedRow stored =
        QuantizeRow(*side.format,
                    absl::MakeConstSpan(side.source)
                        .subspan(row * side.head_dim, side.head_dim),
                    given);
    const QuantizedRow& expected = side.rows[row];
    const bool same = stored.codes == expected.codes &&
                      stored.block_scales == expected.block_scales &&
                      Bits(stored.row_scale) == Bits(expected.row_scale) &&
                      Bits(stored.row_min) == Bits(expected.row_min);
    if (!same && ++failures <= 5) {
      ADD_FAILURE() << golden.name << " " << side.format->name << " row " << row
                    << " scale " << stored.row_scale << " expected "
                    << expected.row_scale;
    }
  }
  EXPECT_EQ(failures, 0) << golden.name;
  return static_cast<int>(side.rows.size());
}

TEST(RowCodecGolden, EveryRecordedRowIsExact) {
  std::set<std::string> formats;
  int rows = 0;
  for (const std::string& path : GoldenCasePaths()) {
    const absl::StatusOr<GoldenCase> golden = LoadGoldenCase(path);
    ASSERT_TRUE(golden.ok()) << golden.status();
    rows += ExpectStoredRows(*golden, golden->k);
    rows += ExpectStoredRows(*golden, golden->v);
    formats.insert(std::string(golden->k.format->name));
    formats.insert(std::string(golden->v.format->name));
  }
  EXPECT_EQ(formats.size(), std::size(kFormats) - 2)
      << "all but f16 and e4m3_channel";
  EXPECT_GT(rows, 5000);
}

// 96 elements: a multiple of 16 and 32, neither a power of two.
constexpr int kHeadDim = 96;

class EachFormat : public ::testing::TestWithParam<const KvFormat*> {
 protected:
  const KvFormat& format() const { return *GetParam(); }
  std::vector<double> RoundTrip(const std::vector<float>& row) const {
    const QuantizedRow stored = QuantizeRow(format(), row, 0.5f);
    EXPECT_EQ(static_cast<int>(stored.codes.size()),
              format().CodeBytes(kHeadDim));
    EXPECT_EQ(static_cast<int>(stored.block_scales.size()),
              format().BlockScaleBytes(kHeadDim));
    return DequantizeRow(format(), stored, 0.5f);
  }
};

TEST_P(EachFormat, ZeroRowsDecodeToExactZeros) {
  for (float zero : {0.0f, -0.0f}) {
    const std::vector<float> row(kHeadDim, zero);
    const QuantizedRow stored = QuantizeRow(format(), row, 0.5f);
    EXPECT_TRUE(std::isfinite(stored.row_scale));
    for (double value : RoundTrip(row)) EXPECT_EQ(value, 0.0);
  }
}

TEST_P(EachFormat, NanReachesTheScaleItEntersAndNoFurther) {
  std::vector<float> row(kHeadDim, 1.0f);
  row[40] = kNan;
  const std::vector<double> values = RoundTrip(row);
  for (int i = 0; i < kHeadDim; ++i) {
    bool poisoned = i == 40;
    if (format().row_scale != RowScale::kNone) {
      poisoned = true;
    } else if (format().block != 0) {
      poisoned = i / format().block == 40 / format().block;
    }
    EXPECT_EQ(std::isnan(values[i]), poisoned) << i;
    if (!poisoned) {
      EXPECT_NEAR(values[i], 1.0, 0.2) << i;
    }
  }
}

TEST_P(EachFormat, InfSaturatesWhereThereIsAScale) {
  for (const double sign : {1.0, -1.0}) {
    std::vector<float> row(kHeadDim, 1.0f);
    row[50] = static_cast<float>(sign) * kInf;
    const std::vector<double> values = RoundTrip(row);
    if (format().code_bits == 16) {  // stored as given
      EXPECT_EQ(values[50], row[50]);
      continue;
    }
    for (int i = 0; i < kHeadDim; ++i) {
      EXPECT_TRUE(std::isfinite(values[i])) << i;
    }
    EXPECT_GT(sign * values[50], sign * values[4]);
    if (format().row_scale != RowScale::kNone) {
      EXPECT_NEAR(sign * values[50] / static_cast<double>(FLT_MAX), 1.0, 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RowCodec, EachFormat, ::testing::ValuesIn([] {
                           std::vector<const KvFormat*> formats;
                           for (const KvFormat& format : kFormats)
                             formats.push_back(&format);
                           return formats;
                         }()),
                         [](const auto& info) {
                           return std::string(info.param->name);
                         });

TEST(RowCodec, NanCodesAreThoseOfTheDefinition) {
  std::vector<float> row(kHeadDim, 1.0f);
  row[0] = kNan;
  const QuantizedRow e4m3 = QuantizeRow(Format("e4m3_row"), row, 0);
  EXPECT_TRUE(std::isnan(e4m3.row_scale));
  EXPECT_EQ(e4m3.codes, std::vector<uint8_t>(kHeadDim, 0x7f));
  const QuantizedRow int8 = QuantizeRow(Format("int8_row"), row, 0);
  EXPECT_TRUE(std::isnan(int8.row_scale));
  EXPECT_EQ(int8.codes, std::vector<uint8_t>(kHeadDim, 0));
  const QuantizedRow int4 = QuantizeRow(Format("int4_row"), row, 0);
  EXPECT_TRUE(std::isnan(int4.row_scale));
  EXPECT_EQ(int4.codes, std::vector<uint8_t>(kHeadDim / 2, 0));
  const QuantizedRow nvfp4 = QuantizeRow(Format("nvfp4_row"), row, 0);
  EXPECT_TRUE(std::isnan(nvfp4.row_scale));
  EXPECT_EQ(nvfp4.codes, std::vector<uint8_t>(kHeadDim / 2, 0));
  EXPECT_EQ(nvfp4.block_scales, std::vector<uint8_t>(kHeadDim / 16, 0x7f));
}

// 448, 1 and -3 over 2, 0.5 and 4: e4m3 224 is 0x76, 2 is 0x40, -0.75 is 0xb4.
TEST(RowCodec, EachChannelHasItsOwnGivenScale) {
  std::vector<float> row(16, 0.0f), scales(16, 1.0f);
  row[0] = 448, row[1] = 1, row[2] = -3;
  scales[0] = 2, scales[1] = 0.5f, scales[2] = 4;
  const GivenScales given(scales);
  const QuantizedRow stored = QuantizeRow(Format("e4m3_channel"), row, given);
  EXPECT_EQ(stored.codes[0], 0x76);
  EXPECT_EQ(stored.codes[1], 0x40);
  EXPECT_EQ(stored.codes[2], 0xb4);
  const std::vector<double> values =
      DequantizeRow(Format("e4m3_channel"), stored, given);
  EXPECT_EQ(values[0], 448);
  EXPECT_EQ(values[1], 1);
  EXPECT_EQ(values[2], -3);
}

TEST(RowCodec, GivenScaleDivides) {
  const std::vector<float> row(64, 448.0f);
  // 448 / 2 = 224 = 1.75 * 2^7: exponent 14, mantissa 6.
  EXPECT_EQ(QuantizeRow(Format("e4m3_tensor"), row, 2.0f).codes[0], 0x76);
}

// A block that is 2^-20 of its row: its e4m3 scale rounds to 0, and so do all
// its codes, instead of saturating at +-6.
TEST(RowCodec, BlockScaleThatRoundsToZeroGivesZeroCodes) {
  std::vector<float> row(32, 1.0f);
  for (int i = 16; i < 32; ++i) row[i] = 0x1p-20f;
  const QuantizedRow stored = QuantizeRow(Format("nvfp4_row"), row, 0);
  EXPECT_EQ(stored.block_scales[0], 0x7e);  // 448
  EXPECT_EQ(stored.block_scales[1], 0);
  for (int byte = 8; byte < 16; ++byte) EXPECT_EQ(stored.codes[byte], 0);
  for (int byte = 0; byte < 8; ++byte) EXPECT_EQ(stored.codes[byte], 0x77);
}

TEST(RowCodec, FirstElementIsTheLowNibble) {
  std::vector<float> row(16, 0.0f);
  row[0] = 6.0f;
  row[3] = -3.0f;
  const QuantizedRow stored = QuantizeRow(Format("nvfp4"), row, 1.0f / 448);
  EXPECT_EQ(stored.codes[0], 0x07);
  EXPECT_EQ(stored.codes[1], 0xd0);  // -3 = sign, code 5
}

TEST(RowCodec, MxBlockOfZerosTakesTheSmallestScale) {
  const QuantizedRow stored =
      QuantizeRow(Format("mxfp8"), std::vector<float>(32, 0.0f), 0);
  EXPECT_EQ(stored.block_scales, std::vector<uint8_t>{0});
  EXPECT_EQ(stored.codes, std::vector<uint8_t>(32, 0));
}

TEST(RowCodec, MxScaleIsTheCeilingOfThePowerOfTwo) {
  // 449 / 448 > 1: 2^1; 448 / 448 = 1: 2^0.
  std::vector<float> row(32, 448.0f);
  EXPECT_EQ(QuantizeRow(Format("mxfp8"), row, 0).block_scales[0], 127);
  row[7] = 449.0f;
  EXPECT_EQ(QuantizeRow(Format("mxfp8"), row, 0).block_scales[0], 128);
}

TEST(RowCodec, SixteenBitFormatsStoreLittleEndian) {
  const std::vector<float> row(16, 1.0f);
  const QuantizedRow bf16 = QuantizeRow(Format("bf16"), row, 0);
  EXPECT_EQ(bf16.codes[0], 0x80);  // 0x3f80
  EXPECT_EQ(bf16.codes[1], 0x3f);
  const QuantizedRow f16 = QuantizeRow(Format("f16"), row, 0);
  EXPECT_EQ(f16.codes[0], 0x00);  // 0x3c00
  EXPECT_EQ(f16.codes[1], 0x3c);
}

// The quotient of x and scale is a tie to even at 1.0625 when it is divided and
// just above it when multiplied by the rounded reciprocal.
TEST(RowCodec, DividesTrulyNotByReciprocal) {
  std::vector<float> row(64, 0.0f);
  row[0] = 0x1.004p+0f;
  row[1] = 0x1.372926p-9f;
  const QuantizedRow stored = QuantizeRow(Format("e4m3_row"), row, 0);
  EXPECT_EQ(row[1] / stored.row_scale, 1.0625f);
  EXPECT_EQ(EncodeE4m3(row[1] * (1.0f / stored.row_scale)), 0x39);
  EXPECT_EQ(stored.codes[1], 0x38);
}

}  // namespace
}  // namespace kvforge
