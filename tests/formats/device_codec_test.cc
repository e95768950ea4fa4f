// The codecs of the device templates, run on the host target, against recorded
// answers of another implementation and against the host's row codecs.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/formats/codec.h"
#include "compiler/formats/row_codec.h"
#include "kernels/jit_overlay.h"
#include "runtime/base/knobs.h"
#include "runtime/host/clang_compiler.h"
#include "runtime/host/host_module.h"

namespace kvforge {
namespace {

struct DeviceArgs {
  const uint32_t* in;
  uint32_t* out;
  int n;
};

constexpr int kThreads = 32;

// A kernel whose warp runs `body` for item i = 0 .. n - 1 of args.in, args.out.
std::string KernelText(const std::string& includes, const std::string& body) {
  return absl::StrCat(
      "#include \"arch/select.cuh\"\n", includes,
      "namespace kvforge { struct DeviceArgs { const u32* in; u32* out; int n; "
      "}; }\n"
      "extern \"C\" __constant__ int kvforge_block_threads = ",
      kThreads,
      ";\n"
      "extern \"C\" __global__ void kvforge_kernel(\n"
      "    const __grid_constant__ kvforge::DeviceArgs args) {\n"
      "  using namespace kvforge;\n"
      "  for (int i = arch::ThreadIndex(); i < args.n; i += ",
      kThreads, ") {\n", body, "  }\n}\n");
}

std::string Include(const std::string& path) {
  return absl::StrCat("#include \"", path, "\"\n");
}

std::vector<uint32_t> RunOnHost(const std::string& text,
                                const std::vector<uint32_t>& in, int n,
                                size_t out_words) {
  HostSource source{"device_codec.cu", text, {}};
  const auto& knobs = EnvironmentKnobs();
  EXPECT_TRUE(knobs.ok()) << knobs.status();
  const auto files = TemplateFiles(knobs->templates_dir);
  EXPECT_TRUE(files.ok()) << files.status();
  for (const TemplateFile& file : *files) {
    source.files.push_back({file.path, file.text});
  }
  const auto object = CompileHostObject(source);
  if (!object.ok()) {
    ADD_FAILURE() << object.status();
    return std::vector<uint32_t>(out_words);
  }
  const auto module = HostModule::Load(*object, kHostEntrySymbol);
  EXPECT_TRUE(module.ok()) << module.status();
  std::vector<uint32_t> out(out_words, 0xdeadbeef);
  const DeviceArgs args{in.data(), out.data(), n};
  HostLaunch launch;
  launch.grid_blocks = 1;
  launch.block_threads = kThreads;
  launch.args = &args;
  launch.seed = 7;
  const auto run = (*module)->Run(launch);
  EXPECT_TRUE(run.ok()) << run.status();
  return out;
}

std::string GoldenPath(const std::string& name) {
  return absl::StrCat(KVFORGE_TEST_DATA, "/golden/codec/", name);
}

struct Sample {
  uint32_t bits;
  int code;
};

// Both sides of every run boundary, two patterns deep.
std::vector<Sample> BoundarySamples(const std::string& name) {
  std::ifstream stream(GoldenPath(name));
  std::vector<Sample> runs;
  for (std::string line; std::getline(stream, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    Sample run;
    fields >> std::hex >> run.bits >> run.code;
    runs.push_back(run);
  }
  std::vector<Sample> samples;
  for (size_t i = 0; i < runs.size(); ++i) {
    const uint64_t end =
        i + 1 < runs.size() ? runs[i + 1].bits : uint64_t{1} << 32;
    for (uint64_t bits = runs[i].bits; bits < end && bits <= runs[i].bits + 2;
         ++bits) {
      samples.push_back({static_cast<uint32_t>(bits), runs[i].code});
    }
    for (uint64_t back = 1; back <= 2 && end >= runs[i].bits + back; ++back) {
      samples.push_back({static_cast<uint32_t>(end - back), runs[i].code});
    }
  }
  return samples;
}

// Every f16 and bf16 pattern as f32, with its code at `golden` of encode16.bin.
std::vector<Sample> All16BitSamples(int golden) {
  std::ifstream stream(GoldenPath("encode16.bin"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
  std::vector<Sample> samples;
  if (bytes.size() != 4 * 65536) return samples;
  for (uint32_t code = 0; code < 65536; ++code) {
    samples.push_back(
        {std::bit_cast<uint32_t>(DecodeF16(static_cast<uint16_t>(code))),
         static_cast<uint8_t>(bytes[golden + code])});
    samples.push_back(
        {code << 16, static_cast<uint8_t>(bytes[golden + 65536 + code])});
  }
  return samples;
}

struct EncodeCase {
  const char* name;  // device struct, and test name
  const char* header;
  const char* golden;
  int code_bits;
  int golden_16;  // also every 16-bit pattern: place in encode16.bin, or -1
};

class DeviceEncode : public ::testing::TestWithParam<EncodeCase> {};

TEST_P(DeviceEncode, AgreesWithGolden) {
  const EncodeCase& c = GetParam();
  std::vector<Sample> samples = BoundarySamples(c.golden);
  ASSERT_GT(samples.size(), 50u);
  if (c.golden_16 >= 0) {
    const std::vector<Sample> more = All16BitSamples(c.golden_16);
    ASSERT_EQ(more.size(), 2u * 65536);
    samples.insert(samples.end(), more.begin(), more.end());
  }
  if (samples.size() % 2 != 0) samples.push_back(samples.back());
  std::vector<uint32_t> in;
  for (const Sample& sample : samples) in.push_back(sample.bits);
  const int pairs = static_cast<int>(in.size() / 2);
  const std::string text = KernelText(
      Include(c.header),
      absl::StrCat(
          "const float lo = "
          "arch::FromBits(arch::LoadGlobal<u32>(args.in + 2 * i));\n"
          "const float hi = "
          "arch::FromBits(arch::LoadGlobal<u32>(args.in + 2 * i + 1));\n"
          "arch::StoreGlobal(args.out + i, static_cast<u32>(formats::",
          c.name, "::Pair(lo, hi)));\n"));
  const std::vector<uint32_t> out = RunOnHost(text, in, pairs, pairs);
  const uint32_t mask = (1u << c.code_bits) - 1;
  int failures = 0;
  for (int i = 0; i < pairs && failures < 5; ++i) {
    const int codes[2] = {static_cast<int>(out[i] & mask),
                          static_cast<int>(out[i] >> c.code_bits)};
    for (int half = 0; half < 2; ++half) {
      const Sample& sample = samples[2 * i + half];
      if (codes[half] == sample.code) continue;
      ++failures;
      ADD_FAILURE() << c.name << ": f32 0x" << std::hex << sample.bits
                    << " gave code 0x" << codes[half] << ", expected 0x"
                    << sample.code;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DeviceEncode,
    ::testing::Values(
        EncodeCase{"E4m3EncodePlaced", "formats/e4m3.cuh",
                   "encode_f32_e4m3fn_satfinite.tsv", 8, 0},
        EncodeCase{"E4m3EncodeHardware", "formats/e4m3_hardware.cuh",
                   "encode_f32_e4m3fn_satfinite.tsv", 8, 0},
        EncodeCase{"E5m2EncodePlaced", "formats/e5m2.cuh",
                   "encode_f32_e5m2_satfinite.tsv", 8, 0x20000},
        EncodeCase{"E5m2EncodeHardware", "formats/e5m2_hardware.cuh",
                   "encode_f32_e5m2_satfinite.tsv", 8, 0x20000},
        EncodeCase{"Ue8m0EncodeCeil", "formats/ue8m0.cuh",
                   "encode_f32_ue8m0_roundup.tsv", 8, -1},
        EncodeCase{"E2m1EncodePlaced", "formats/e2m1.cuh",
                   "encode_f32_e2m1.tsv", 4, -1},
        EncodeCase{"E2m1EncodeHardware", "formats/e2m1_hardware.cuh",
                   "encode_f32_e2m1.tsv", 4, -1}),
    [](const auto& info) { return std::string(info.param.name); });

struct DecodeCase {
  const char* name;  // device function
  const char* header;
  int code_bits;
  float (*decode)(uint8_t);
  int repay_exponent;  // value = 2^repay_exponent * decoded
  bool scale_pair;     // takes two codes, not four
  // Of 4-bit codes: 0 in the low nibbles of four bytes, 1 in the high ones.
  // What the others hold is not theirs.
  int nibble = 0;
};

float DecodeUint4(uint8_t code) { return code; }
float DecodeInt8(uint8_t code) { return static_cast<int8_t>(code); }

class DeviceDecode : public ::testing::TestWithParam<DecodeCase> {};

// Every code in every position; the host's decoders are exhaustively tested
// against decode.tsv in codec_test.
TEST_P(DeviceDecode, IsExactForEveryCode) {
  const DecodeCase& c = GetParam();
  const int codes = 1 << c.code_bits;
  const int per_word = c.scale_pair ? 2 : 4;
  const auto code_at = [&](int item, int position) {
    return (item + 37 * position) % codes;
  };
  std::vector<uint32_t> in;
  for (int item = 0; item < codes; ++item) {
    const uint32_t others = (~item & 0xfu) * 0x11111111u;
    uint32_t word =
        c.code_bits > 4 ? 0 : others & 0xf0f0f0f0u >> (4 * c.nibble);
    for (int position = 0; position < per_word; ++position) {
      word |= static_cast<uint32_t>(code_at(item, position))
              << (8 * position + 4 * c.nibble);
    }
    in.push_back(word);
  }
  const std::string load = "const u32 word = arch::LoadGlobal<u32>(args.in+i);";
  const std::string body =
      c.scale_pair
          ? absl::StrCat(
                load, "arch::StoreGlobal(args.out + 2 * i, formats::", c.name,
                "(word & 0xff, word >> 8));\n"
                "arch::StoreGlobal(args.out + 2 * i + 1, 0u);\n")
          : absl::StrCat(
                load, "u32 pairs[2]; formats::", c.name,
                c.code_bits > 4 ? "(word" : absl::StrCat("(word, ", c.nibble),
                ", pairs);\n"
                "arch::StoreGlobal(args.out + 2 * i, pairs[0]);\n"
                "arch::StoreGlobal(args.out + 2 * i + 1, pairs[1]);\n");
  const std::vector<uint32_t> out =
      RunOnHost(KernelText(Include(c.header), body), in, codes, 2 * in.size());
  for (int item = 0; item < codes; ++item) {
    for (int position = 0; position < per_word; ++position) {
      const auto half = static_cast<uint16_t>(out[2 * item + position / 2] >>
                                              (16 * (position % 2)));
      const float got = std::ldexp(DecodeF16(half), c.repay_exponent);
      const auto code = static_cast<uint8_t>(code_at(item, position));
      const float expected = c.decode(code);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(got)) << c.name << " of code " << int{code};
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(got),
                  std::bit_cast<uint32_t>(expected))
            << c.name << " of code " << int{code} << " at " << position;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DeviceDecode,
    ::testing::Values(
        DecodeCase{"E4m3ToF16Placed4", "formats/e4m3.cuh", 8, DecodeE4m3, 8,
                   false},
        DecodeCase{"E4m3ToF16Hardware4", "formats/e4m3_hardware.cuh", 8,
                   DecodeE4m3, 0, false},
        DecodeCase{"E4m3ScalePairPlaced", "formats/e4m3.cuh", 8, DecodeE4m3, 0,
                   true},
        DecodeCase{"E4m3ScalePairHardware", "formats/e4m3_hardware.cuh", 8,
                   DecodeE4m3, 0, true},
        DecodeCase{"E5m2ToF16Placed4", "formats/e5m2.cuh", 8, DecodeE5m2, 0,
                   false},
        DecodeCase{"Int8ToF16Offset4", "formats/int8.cuh", 8, DecodeInt8, 0,
                   false},
        DecodeCase{"Uint4ToF16Offset4", "formats/uint4.cuh", 4, DecodeUint4, 0,
                   false, 0},
        DecodeCase{"Uint4ToF16Offset4", "formats/uint4.cuh", 4, DecodeUint4, 0,
                   false, 1},
        DecodeCase{"E2m1ToF16Placed4", "formats/e2m1.cuh", 4, DecodeE2m1, 14,
                   false, 0},
        DecodeCase{"E2m1ToF16Placed4", "formats/e2m1.cuh", 4, DecodeE2m1, 14,
                   false, 1},
        DecodeCase{"E2m1ToF16Hardware4", "formats/e2m1_hardware.cuh", 4,
                   DecodeE2m1, 0, false, 0},
        DecodeCase{"E2m1ToF16Hardware4", "formats/e2m1_hardware.cuh", 4,
                   DecodeE2m1, 0, false, 1}),
    [](const auto& info) {
      return absl::StrCat(info.param.name,
                          info.param.nibble == 1 ? "High" : "");
    });

TEST(DeviceDecodeUe8m0, IsExactForEveryCode) {
  std::vector<uint32_t> in;
  for (uint32_t code = 0; code < 256; ++code) in.push_back(code);
  const std::vector<uint32_t> out = RunOnHost(
      KernelText(
          Include("formats/ue8m0.cuh"),
          "arch::StoreGlobal(args.out + i, arch::Bits("
          "formats::Ue8m0ToF32(arch::LoadGlobal<u32>(args.in + i))));\n"),
      in, 256, 256);
  for (uint32_t code = 0; code < 255; ++code) {
    EXPECT_EQ(out[code],
              std::bit_cast<uint32_t>(DecodeUe8m0(static_cast<uint8_t>(code))))
        << code;
  }
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(out[255])));
}

struct RowCase {
  const char* format;
  const char* quantizer;
  const char* headers[3];
};

class DeviceRow : public ::testing::TestWithParam<RowCase> {};

constexpr int kRowElements = 64;  // 4 lanes of 16
// Of a lane: 8 words of codes, row scale, row minimum, block scale.
constexpr int kLaneOutWords = 11;
constexpr int kRowOutWords = 4 * kLaneOutWords;

// Rows that leave no room: ordinary ones over many magnitudes, zeros, -0.0, a
// zero block, tiny blocks, NaN, infinities, the largest f32.
std::vector<std::vector<float>> Rows() {
  std::mt19937 random(20240607);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < 4012; ++i) {
    std::vector<float> row(kRowElements);
    const float magnitude = std::ldexp(1.0f, i % 60 - 30);
    for (float& x : row) x = normal(random) * magnitude;
    if (i % 7 == 0) {
      for (int j = 16; j < 32; ++j)
        row[j] = i % 14 == 0 ? 0.0f : row[j] * 1e-6f;
    }
    rows.push_back(row);
  }
  // Halfway between two codes after division by the row's own scale: a quotient
  // that is off by one ulp takes the other code.
  std::uniform_real_distribution<float> significand(1, 2);
  for (int i = 0; i < 200; ++i) {
    std::vector<float> row(kRowElements);
    row[0] = 448 * significand(random);
    const float scale = row[0] / 448;
    for (int j = 1; j < kRowElements; ++j) {
      row[j] = std::ldexp(8.5f + j % 8, j / 8 - 4) * scale;
    }
    rows.push_back(row);
  }
  const float nan = std::nanf("");
  const float inf = INFINITY;
  for (float special : {0.0f, -0.0f, nan, inf, -inf, 3.4028235e38f, 1e-12f,
                        1e-38f, 1e-45f, 1.7499f}) {
    rows.push_back(std::vector<float>(kRowElements, special));
    rows.push_back(rows[3]);
    rows.back()[17] = special;
  }
  return rows;
}

// Bit for bit, or both NaN.
bool SameFloat(uint32_t bits, float expected) {
  return bits == std::bit_cast<uint32_t>(expected) ||
         (std::isnan(std::bit_cast<float>(bits)) && std::isnan(expected));
}

constexpr int kDivideWords = 17;  // a divisor and a row's 16 dividends

// Dividends about what puts a quotient at or half way between neighbours.
std::vector<uint32_t> HardDivisions() {
  std::mt19937 engine(23);
  const auto random = [&] { return static_cast<uint32_t>(engine()); };
  std::vector<uint32_t> words;
  const auto append = [&](float x) {
    words.push_back(std::bit_cast<uint32_t>(x));
  };
  const auto about = [&](double exact, int ulps) {
    append(std::bit_cast<float>(
        std::bit_cast<uint32_t>(static_cast<float>(exact)) + ulps));
  };
  for (int row = 0; row < 20000; ++row) {
    // Significands near a power of two, near the next, and any.
    uint32_t significand = random() & 0x7fffffu;
    if (row % 4 == 0) significand &= 0xff;
    if (row % 4 == 1) significand |= 0x7fff00u;
    const float divisor =
        std::ldexp(std::bit_cast<float>(0x3f800000u | significand),
                   static_cast<int>(random() % 100) - 50);
    append(divisor);
    for (int j = 0; j < 16; ++j) {
      double quotient = std::bit_cast<float>(0x3f800000u | (random() >> 9));
      if (j % 4 < 2) quotient = 1 + (random() % 256) / 256.0;  // of few bits
      if (j % 4 == 1) quotient += std::ldexp(1, -24);
      if (j % 4 == 3) quotient += std::ldexp(1, -24);
      const double sign = j % 2 == 0 ? 1 : -1;
      about(sign * std::ldexp(quotient, static_cast<int>(random() % 24) - 12) *
                divisor,
            static_cast<int>(random() % 5) - 2);
    }
  }
  for (float divisor :
       {1.0f, -3.0f, 0.0f, -0.0f, INFINITY, std::nanf(""), 0x1p-60f, 0x1p60f,
        0x1.8p-61f, 0x1.8p60f, 0x1p-149f, 3.4028235e38f}) {
    append(divisor);
    for (float x : {0.0f, -0.0f, 1.0f, -1.0f, 0x1p60f, -0x1p60f, 448.0f, 0.1f,
                    -7.0f, 0x1p-149f, -0x1p-149f, 0x1p-126f, -0x1p-126f, 1e-20f,
                    1e15f, -1e-15f}) {
      append(x);
    }
    append(divisor);
    for (float x : {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, 448.0f,
                    0x1.8p60f, 3.4028235e38f, -3.4028235e38f, 0x1p-149f, 0.1f,
                    -0x1p-126f, 1e-20f, 1e20f, std::nanf("")}) {
      append(x);
    }
  }
  return words;
}

TEST(DeviceDivision, OfARowIsTrueDivision) {
  const std::vector<uint32_t> in = HardDivisions();
  const int rows = static_cast<int>(in.size() / kDivideWords);
  const std::vector<uint32_t> out = RunOnHost(
      KernelText(
          Include("formats/row_scale.cuh"),
          "const u32* in = args.in + 17 * i;\n"
          "float x[16]; for (int j = 0; j < 16; ++j) x[j] = "
          "arch::FromBits(arch::LoadGlobal<u32>(in + 1 + j));\n"
          "formats::DivideAll(x, formats::LaneAmax(x), "
          "arch::FromBits(arch::LoadGlobal<u32>(in)), x);\n"
          "for (int j = 0; j < 16; ++j) "
          "arch::StoreGlobal(args.out + 16 * i + j, arch::Bits(x[j]));\n"),
      in, rows, 16 * static_cast<size_t>(rows));
  int failures = 0;
  for (int row = 0; row < rows && failures < 5; ++row) {
    const float divisor = std::bit_cast<float>(in[kDivideWords * row]);
    for (int j = 0; j < 16; ++j) {
      const float x = std::bit_cast<float>(in[kDivideWords * row + 1 + j]);
      const float expected = x / divisor;
      const float got = std::bit_cast<float>(out[16 * row + j]);
      if (SameFloat(out[16 * row + j], expected)) continue;
      if (std::fabs(expected) < 0x1p-60f && std::fabs(got) < 0x1p-60f &&
          std::signbit(got) == std::signbit(expected)) {
        continue;
      }
      ++failures;
      ADD_FAILURE() << x << " / " << divisor << " = " << got << ", expected "
                    << expected;
    }
  }
}

TEST_P(DeviceRow, MatchesTheHostCodec) {
  const RowCase& c = GetParam();
  const auto format = FindFormat(c.format);
  ASSERT_TRUE(format.ok()) << format.status();
  constexpr float kGiven = 0.0371f;
  const std::vector<std::vector<float>> rows = Rows();
  std::vector<uint32_t> in;
  for (const auto& row : rows) {
    for (float x : row) in.push_back(std::bit_cast<uint32_t>(x));
  }
  std::string includes;
  for (const char* header : c.headers) {
    if (header != nullptr) includes += Include(header);
  }
  // Lane i % 4 of row i / 4.
  const std::string text = KernelText(
      includes,
      absl::StrCat(
          "using Q = formats::", c.quantizer, ";\n",
          "float x[16]; for (int j = 0; j < 16; ++j) x[j] = "
          "arch::FromBits(arch::LoadGlobal<u32>(args.in + 16 * i + j));\n"
          "u32 codes[Q::kCodeBits / 2]; formats::Sidecars s = {0, 0, 0};\n"
          "Q::template Quantize<4>(x, ",
          kGiven, "f, codes, s);\n", "u32* out = args.out + ", kLaneOutWords,
          " * i;\n"
          "for (int j = 0; j < Q::kCodeBits / 2; ++j) "
          "arch::StoreGlobal(out + j, codes[j]);\n"
          "arch::StoreGlobal(out + 8, arch::Bits(s.row_scale));\n"
          "arch::StoreGlobal(out + 9, arch::Bits(s.row_minimum));\n"
          "arch::StoreGlobal(out + 10, s.block_scale);\n"));
  // Whole warps, so that every lane takes part in the row's reductions.
  const int items = static_cast<int>(rows.size()) * 4;
  ASSERT_EQ(items % kThreads, 0);
  const std::vector<uint32_t> out =
      RunOnHost(text, in, items, rows.size() * kRowOutWords);
  const int words = (*format)->code_bits / 2;  // of one lane
  int failures = 0;
  for (size_t r = 0; r < rows.size() && failures < 5; ++r) {
    const QuantizedRow expected = QuantizeRow(**format, rows[r], kGiven);
    std::vector<uint8_t> codes, blocks;
    const uint32_t* lanes = out.data() + r * kRowOutWords;
    const int lanes_of_block = (*format)->block / 16;
    for (int lane = 0; lane < 4; ++lane) {
      const uint32_t* own = lanes + kLaneOutWords * lane;
      for (int byte = 0; byte < 4 * words; ++byte) {
        codes.push_back(own[byte / 4] >> (8 * (byte % 4)));
      }
      if (lanes_of_block != 0 && lane % lanes_of_block == 0) {
        blocks.push_back(own[10]);
      }
    }
    if (codes == expected.codes && blocks == expected.block_scales &&
        SameFloat(lanes[8], expected.row_scale) &&
        SameFloat(lanes[9], expected.row_min)) {
      continue;
    }
    ++failures;
    ADD_FAILURE() << c.quantizer << ": row " << r << " starting with "
                  << rows[r][0] << ", " << rows[r][1] << " differs: scale "
                  << std::bit_cast<float>(lanes[8]) << ", expected "
                  << expected.row_scale;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DeviceRow,
    ::testing::Values(
        RowCase{"e4m3_row",
                "E4m3Row<formats::E4m3EncodePlaced>",
                {"formats/e4m3_row.cuh"}},
        RowCase{"e4m3_tensor",
                "Fp8Tensor<formats::E4m3EncodePlaced>",
                {"formats/fp8_given.cuh", "formats/e4m3.cuh"}},
        RowCase{"e4m3_head",
                "Fp8Head<formats::E4m3EncodePlaced>",
                {"formats/fp8_given.cuh", "formats/e4m3.cuh"}},
        RowCase{"e5m2_tensor",
                "Fp8Tensor<formats::E5m2EncodePlaced>",
                {"formats/fp8_given.cuh", "formats/e5m2.cuh"}},
        RowCase{"int8_row",
                "Int8Row<formats::Int8Encode>",
                {"formats/int8_row.cuh", "formats/int8.cuh"}},
        RowCase{"int4_row",
                "Int4Row<formats::Uint4Encode>",
                {"formats/int4_row.cuh", "formats/uint4.cuh"}},
        RowCase{"mxfp8",
                "Mxfp8<formats::Ue8m0EncodeCeil, formats::E4m3EncodePlaced>",
                {"formats/mx.cuh", "formats/e4m3.cuh"}},
        RowCase{"mxfp4",
                "Mxfp4<formats::Ue8m0EncodeCeil, formats::E2m1EncodePlaced>",
                {"formats/mx.cuh", "formats/e2m1.cuh"}},
        RowCase{
            "nvfp4_row",
            "Nvfp4Row<formats::E4m3EncodePlaced, formats::E2m1EncodePlaced>",
            {"formats/nvfp4.cuh"}},
        RowCase{"nvfp4_row",
                "Nvfp4Row<formats::E4m3EncodeHardware, "
                "formats::E2m1EncodeHardware>",
                {"formats/nvfp4.cuh", "formats/e4m3_hardware.cuh",
                 "formats/e2m1_hardware.cuh"}},
        RowCase{"nvfp4",
                "Nvfp4<formats::E4m3EncodePlaced, formats::E2m1EncodePlaced>",
                {"formats/nvfp4.cuh"}},
        RowCase{"bf16", "Bf16Row", {"formats/plain.cuh"}},
        RowCase{"f16", "F16Row", {"formats/plain.cuh"}}),
    [](const auto& info) {
      return absl::StrCat("Row", info.index, "_", info.param.format);
    });

}  // namespace
}  // namespace kvforge
