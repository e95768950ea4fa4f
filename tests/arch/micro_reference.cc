#include "tests/arch/micro_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>

namespace kvforge {
namespace {

std::string GoldenPath(const std::string& file) {
  return std::string(KVFORGE_TEST_DATA) + "/golden/codec/" + file;
}

}  // namespace

uint32_t EncodeNarrow(const NarrowFloat& type, double value) {
  const uint32_t sign =
      std::signbit(value) ? 1u << (type.mantissa_bits + type.exponent_bits) : 0;
  const double magnitude = std::abs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | type.infinity;
  const int min_exponent = 1 - type.bias;
  const int exponent = std::max(std::ilogb(magnitude), min_exponent);
  // Units in the last place of that binade; rounding may give the next one.
  const double units =
      std::nearbyint(std::ldexp(magnitude, type.mantissa_bits - exponent));
  const uint32_t bits =
      static_cast<uint32_t>(units) +
      (static_cast<uint32_t>(exponent - min_exponent) << type.mantissa_bits);
  return sign | std::min(bits, type.infinity);
}

double DecodeNarrow(const NarrowFloat& type, uint32_t bits) {
  const uint32_t mantissa = bits & ((1u << type.mantissa_bits) - 1);
  const uint32_t exponent =
      bits >> type.mantissa_bits & ((1u << type.exponent_bits) - 1);
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - type.bias - type.mantissa_bits)
                    : std::ldexp(mantissa + (1u << type.mantissa_bits),
                                 static_cast<int>(exponent) - type.bias -
                                     type.mantissa_bits);
  const bool negative = bits >> (type.mantissa_bits + type.exponent_bits) & 1;
  return negative ? -magnitude : magnitude;
}

uint32_t EncodeNarrowF32(const NarrowFloat& type, uint32_t f32_bits) {
  const float value = std::bit_cast<float>(f32_bits);
  return std::isnan(value) ? 0x7fff : EncodeNarrow(type, value);
}

std::vector<uint32_t> WithNeighbours(const std::vector<uint32_t>& magnitudes) {
  std::vector<uint32_t> words;
  for (const uint32_t magnitude : magnitudes) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      if (magnitude != 0) words.push_back(sign | (magnitude - 1));
      words.push_back(sign | magnitude);
      words.push_back(sign | (magnitude + 1));
    }
  }
  return words;
}

std::vector<uint32_t> SpecialF32() {
  return WithNeighbours({0, 0x00000002, 0x00400000, 0x00800000, 0x3f000000,
                         0x3f800000, 0x3fc00000, 0x40200000, 0x4b000000,
                         0x7f000000, 0x7f7ffffe, 0x7f800000, 0x7fa00000,
                         0x7fc00000, 0x7ffffffe});
}

std::vector<uint32_t> RandomWords(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> words(count);
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  return words;
}

std::map<uint32_t, uint32_t> GoldenEncoder(const std::string& name) {
  std::map<uint32_t, uint32_t> table;
  std::ifstream file(GoldenPath("encode_f32_" + name + ".tsv"));
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    uint32_t first;
    uint32_t code;
    if (fields >> std::hex >> first >> code) table[first] = code;
  }
  return table;
}

uint32_t GoldenEncode(const std::map<uint32_t, uint32_t>& encoder,
                      uint32_t f32_bits) {
  return std::prev(encoder.upper_bound(f32_bits))->second;
}

std::map<uint32_t, uint32_t> GoldenDecoder(const std::string& format) {
  std::map<uint32_t, uint32_t> table;
  std::ifstream file(GoldenPath("decode.tsv"));
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    uint32_t code;
    uint32_t bits;
    if (fields >> name >> std::hex >> code >> bits && name == format) {
      table[code] = bits;
    }
  }
  return table;
}

std::vector<uint8_t> GoldenEncode16() {
  std::ifstream file(GoldenPath("encode16.bin"), std::ios::binary);
  return std::vector<uint8_t>(std::istreambuf_iterator<char>(file), {});
}

}  // namespace kvforge
