// The scalar codecs against recorded answers of another implementation, and
// against the definition of rounding for the 16-bit types.
#include "compiler/formats/codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace kvforge {
namespace {

std::string GoldenPath(const std::string& name) {
  return std::string(KVFORGE_TEST_DATA) + "/golden/codec/" + name;
}

// Every f32 pattern from `first_bits` to the next run's encodes to `code`.
struct CodeRun {
  uint32_t first_bits;
  int code;
};

std::vector<CodeRun> ReadRuns(const std::string& name) {
  std::ifstream stream(GoldenPath(name));
  std::vector<CodeRun> runs;
  for (std::string line; std::getline(stream, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    CodeRun run;
    fields >> std::hex >> run.first_bits >> run.code;
    EXPECT_FALSE(fields.fail()) << line;
    runs.push_back(run);
  }
  return runs;
}

struct EncoderCase {
  const char* name;
  const char* file;
  uint8_t (*encode)(float);
  size_t runs;  // lines of the file
};

class EncoderGolden : public ::testing::TestWithParam<EncoderCase> {};

TEST_P(EncoderGolden, AgreesAtEveryRunBoundary) {
  const std::vector<CodeRun> runs = ReadRuns(GetParam().file);
  ASSERT_EQ(runs.size(), GetParam().runs);
  ASSERT_EQ(runs[0].first_bits, 0u);
  int failures = 0;
  const auto check = [&](uint64_t bits, size_t run) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const int code = GetParam().encode(value);
    if (code == runs[run].code || ++failures > 5) return;
    ADD_FAILURE() << std::hex << "bits " << bits << " code " << code
                  << " expected " << runs[run].code;
  };
  for (size_t run = 0; run < runs.size(); ++run) {
    const uint64_t first = runs[run].first_bits;
    const uint64_t end =
        run + 1 < runs.size() ? runs[run + 1].first_bits : uint64_t{1} << 32;
    ASSERT_LT(first, end) << "runs out of order";
    for (uint64_t step = 0; step < 3 && first + step < end; ++step) {
      check(first + step, run);
      check(end - 1 - step, run);
    }
    // A step that shares no factor with a power of two meets all low bits.
    for (uint64_t bits = first; bits < end; bits += 10007) check(bits, run);
  }
  EXPECT_EQ(failures, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Codec, EncoderGolden,
    ::testing::Values(
        EncoderCase{"e4m3", "encode_f32_e4m3fn_satfinite.tsv", EncodeE4m3, 256},
        EncoderCase{"e5m2", "encode_f32_e5m2_satfinite.tsv", EncodeE5m2, 250},
        EncoderCase{"e2m1", "encode_f32_e2m1.tsv", EncodeE2m1, 17},
        EncoderCase{"ue8m0", "encode_f32_ue8m0_roundup.tsv", EncodeUe8m0Ceil,
                    512}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(CodecGolden, EveryF16AndBf16PatternEncodesAlike) {
  std::ifstream stream(GoldenPath("encode16.bin"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)),
                          std::istreambuf_iterator<char>());
  constexpr size_t kPatterns = 65536;
  ASSERT_EQ(bytes.size(), 4 * kPatterns);
  // f16 to e4m3, bf16 to e4m3, f16 to e5m2, bf16 to e5m2.
  size_t failures = 0;
  for (size_t table = 0; table < 4; ++table) {
    for (size_t pattern = 0; pattern < kPatterns; ++pattern) {
      const uint16_t code = static_cast<uint16_t>(pattern);
      const float value = table % 2 == 0 ? DecodeF16(code) : DecodeBf16(code);
      const uint8_t encoded = table < 2 ? EncodeE4m3(value) : EncodeE5m2(value);
      const uint8_t expected =
          static_cast<uint8_t>(bytes[table * kPatterns + pattern]);
      if (encoded == expected || ++failures > 5) continue;
      ADD_FAILURE() << "table " << table << std::hex << " pattern " << pattern
                    << " code " << int{encoded} << " expected "
                    << int{expected};
    }
  }
  EXPECT_EQ(failures, 0u);
}

TEST(CodecGolden, EveryCodeDecodesAlike) {
  std::ifstream stream(GoldenPath("decode.tsv"));
  int codes = 0;
  for (std::string line; std::getline(stream, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string format;
    int code = 0;
    uint32_t bits = 0;
    fields >> format >> std::hex >> code >> bits;
    ASSERT_FALSE(fields.fail()) << line;
    const uint8_t byte = static_cast<uint8_t>(code);
    float value = 0;
    if (format == "e4m3fn") {
      value = DecodeE4m3(byte);
    } else if (format == "e5m2") {
      value = DecodeE5m2(byte);
    } else if (format == "e2m1") {
      value = DecodeE2m1(byte);
    } else {
      ASSERT_EQ(format, "ue8m0");
      value = DecodeUe8m0(byte);
    }
    const float expected = std::bit_cast<float>(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << line;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(value), bits) << line;
    }
    ++codes;
  }
  EXPECT_EQ(codes, 256 + 256 + 16 + 256);
}

struct Type16 {
  const char* name;
  uint16_t (*encode)(float);
  float (*decode)(uint16_t);
  uint16_t inf;
};

class SixteenBit : public ::testing::TestWithParam<Type16> {};

// Between two neighbours lo < hi (codes c, c + 1) the midpoint goes to the even
// code and the floats beside it to the nearer one.
TEST_P(SixteenBit, RoundsToNearestEvenBetweenAllNeighbours) {
  const Type16& type = GetParam();
  for (uint32_t sign : {0u, 0x8000u}) {
    for (uint32_t magnitude = 0; magnitude + 1 < type.inf; ++magnitude) {
      const uint16_t code = static_cast<uint16_t>(sign | magnitude);
      const uint16_t next = static_cast<uint16_t>(code + 1);
      const float low = type.decode(code);
      const float high = type.decode(next);
      ASSERT_EQ(type.encode(low), code);
      ASSERT_EQ(type.encode(high), next);
      const float middle = static_cast<float>(
          (static_cast<double>(low) + static_cast<double>(high)) / 2);
      ASSERT_EQ(type.encode(middle), code % 2 == 0 ? code : next) << low;
      ASSERT_EQ(type.encode(std::nextafter(middle, low)), code) << low;
      ASSERT_EQ(type.encode(std::nextafter(middle, high)), next) << low;
    }
  }
}

TEST_P(SixteenBit, KeepsInfAndNan) {
  const Type16& type = GetParam();
  EXPECT_EQ(type.encode(INFINITY), type.inf);
  EXPECT_EQ(type.encode(-INFINITY), type.inf | 0x8000);
  EXPECT_EQ(type.encode(NAN), 0x7fff);
  EXPECT_TRUE(std::isinf(type.decode(type.inf)));
  EXPECT_TRUE(std::isnan(type.decode(0x7fff)));
  EXPECT_TRUE(std::isnan(type.decode(0xffff)));
  EXPECT_EQ(type.encode(3.4e38f), type.inf);
}

INSTANTIATE_TEST_SUITE_P(
    Codec, SixteenBit,
    ::testing::Values(Type16{"f16", EncodeF16, DecodeF16, 0x7c00},
                      Type16{"bf16", EncodeBf16, DecodeBf16, 0x7f80}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Codec, F16OverflowsHalfAStepPastItsLargest) {
  EXPECT_EQ(EncodeF16(65519.99f), 0x7bff);  // below 65504 + 16
  EXPECT_EQ(EncodeF16(65520.0f), 0x7c00);
}

TEST(Codec, ValuesOfTheDefinition) {
  EXPECT_EQ(EncodeE4m3(1.0625f), 0x38);
  EXPECT_EQ(EncodeE4m3(std::nextafter(1.0625f, 2.0f)), 0x39);
  EXPECT_EQ(EncodeE4m3(0x1p-10f), 0x00);
  EXPECT_EQ(EncodeE4m3(464.0f), 0x7e);
  EXPECT_EQ(EncodeE4m3(-0.0f), 0x80);
  EXPECT_EQ(EncodeE4m3(-INFINITY), 0xfe);
  EXPECT_EQ(EncodeE5m2(1.125f), 0x3c);
  EXPECT_EQ(EncodeE5m2(9.0f), 0x48);
  EXPECT_EQ(DecodeE2m1(EncodeE2m1(0.25f)), 0.0f);
  EXPECT_EQ(DecodeE2m1(EncodeE2m1(1.25f)), 1.0f);
  EXPECT_EQ(DecodeE2m1(EncodeE2m1(2.5f)), 2.0f);
  EXPECT_EQ(DecodeE2m1(EncodeE2m1(5.0f)), 4.0f);
}

}  // namespace
}  // namespace kvforge
