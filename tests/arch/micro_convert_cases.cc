// Conversions: every 8-bit and 16-bit input; f32 inputs at every boundary of
// the result, beside it, and at random.
#include <bit>
#include <cmath>

#include "tests/arch/micro_cases.h"
#include "tests/arch/micro_reference.h"

namespace kvforge {
namespace {

constexpr uint32_t kNan = 0x7fffffff;

uint32_t F32(double value) {
  return std::bit_cast<uint32_t>(static_cast<float>(value));
}

// Pairs of words: the input as the lower half, a shuffled one as the upper.
std::vector<uint32_t> Paired(const std::vector<uint32_t>& words) {
  std::vector<uint32_t> pairs;
  const size_t count = words.size();
  for (size_t i = 0; i < count; ++i) {
    pairs.push_back(words[i]);
    pairs.push_back(words[(i * 7 + 3) % count]);
  }
  return pairs;
}

// Every value of the type and every tie between two, as f32 magnitudes.
std::vector<uint32_t> ValuesAndTies(const NarrowFloat& type) {
  std::vector<uint32_t> magnitudes;
  for (uint32_t bits = 0; bits < type.infinity; ++bits) {
    const double value = DecodeNarrow(type, bits);
    const double next = bits + 1 == type.infinity
                            ? 2 * value - DecodeNarrow(type, bits - 1)
                            : DecodeNarrow(type, bits + 1);
    magnitudes.push_back(F32(value));
    magnitudes.push_back(F32((value + next) / 2));
  }
  return magnitudes;
}

MicroCase PackCase(const char* file, const NarrowFloat& type) {
  std::vector<uint32_t> words = WithNeighbours(ValuesAndTies(type));
  for (const uint32_t word : SpecialF32()) words.push_back(word);
  for (const uint32_t word : RandomWords(20000, 1)) words.push_back(word);
  std::vector<uint32_t> in = Paired(words);
  std::vector<uint32_t> expected;
  for (size_t i = 0; i < in.size(); i += 2) {
    expected.push_back(EncodeNarrowF32(type, in[i]) |
                       EncodeNarrowF32(type, in[i + 1]) << 16);
  }
  return EachCase(file, 2, std::move(in), std::move(expected));
}

MicroCase WidenCase(const char* file, const NarrowFloat& type) {
  std::vector<uint32_t> in;
  std::vector<uint32_t> expected;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t magnitude = bits & 0x7fff;
    const uint32_t sign = (bits & 0x8000) << 16;
    in.push_back(bits);
    if (magnitude < type.infinity) {
      expected.push_back(F32(DecodeNarrow(type, bits)));
    } else if (magnitude == type.infinity) {
      expected.push_back(sign | 0x7f800000);
    } else {
      // A bf16 is the upper half of an f32 and keeps its payload.
      expected.push_back(type.mantissa_bits == 7 ? bits << 16 : kNan);
    }
  }
  return EachCase(file, 1, std::move(in), std::move(expected));
}

// A function of two pairs of f16, half by half.
MicroCase PairCase(const char* file, uint32_t seed,
                   uint32_t (*half)(uint32_t, uint32_t)) {
  std::vector<uint32_t> in = RandomWords(40000, seed);
  const uint32_t halves[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00,
                             0xbc01, 0x7bff, 0x7c00, 0xfc00, 0x7c01, 0xfe00};
  for (const uint32_t x : halves) {
    for (const uint32_t y : halves) {
      in.push_back(x | y << 16);
      in.push_back(y | y << 16);
    }
  }
  std::vector<uint32_t> expected;
  for (size_t i = 0; i < in.size(); i += 2) {
    expected.push_back(half(in[i] & 0xffff, in[i + 1] & 0xffff) |
                       half(in[i] >> 16, in[i + 1] >> 16) << 16);
  }
  return EachCase(file, 2, std::move(in), std::move(expected));
}

MicroCase MulF16x2Case() {
  return PairCase("mul_f16x2", 2, [](uint32_t x, uint32_t y) -> uint32_t {
    const bool nan = (x & 0x7fff) > 0x7c00 || (y & 0x7fff) > 0x7c00;
    const bool infinite = (x & 0x7fff) == 0x7c00 || (y & 0x7fff) == 0x7c00;
    const bool zero = (x & 0x7fff) == 0 || (y & 0x7fff) == 0;
    if (nan || (infinite && zero)) return 0x7fff;
    if (infinite) return 0x7c00 | ((x ^ y) & 0x8000);
    return EncodeNarrow(kF16, DecodeNarrow(kF16, x) * DecodeNarrow(kF16, y));
  });
}

MicroCase AddF16x2Case() {
  return PairCase("add_f16x2", 10, [](uint32_t x, uint32_t y) -> uint32_t {
    const bool x_infinite = (x & 0x7fff) == 0x7c00;
    const bool y_infinite = (y & 0x7fff) == 0x7c00;
    if ((x & 0x7fff) > 0x7c00 || (y & 0x7fff) > 0x7c00 ||
        (x_infinite && y_infinite && x != y)) {
      return 0x7fff;
    }
    if (x_infinite) return x;
    if (y_infinite) return y;
    // The sum is exact in double, the sign of a zero included.
    return EncodeNarrow(kF16, DecodeNarrow(kF16, x) + DecodeNarrow(kF16, y));
  });
}

uint32_t F16OfGolden(uint32_t f32_bits) {
  return EncodeNarrowF32(kF16, f32_bits);
}

MicroCase E4m3DecodeCase() {
  const std::map<uint32_t, uint32_t> decoder = GoldenDecoder("e4m3fn");
  std::vector<uint32_t> in;
  std::vector<uint32_t> expected;
  for (uint32_t codes = 0; codes < 0x10000; ++codes) {
    in.push_back(codes);
    expected.push_back(F16OfGolden(decoder.at(codes & 0xff)) |
                       F16OfGolden(decoder.at(codes >> 8)) << 16);
  }
  MicroCase micro =
      EachCase("e4m3x2_to_f16x2", 1, std::move(in), std::move(expected));
  micro.min_compute_capability = 89;
  return micro;
}

MicroCase E2m1DecodeCase() {
  const std::map<uint32_t, uint32_t> decoder = GoldenDecoder("e2m1");
  std::vector<uint32_t> in;
  std::vector<uint32_t> expected;
  for (uint32_t codes = 0; codes < 0x100; ++codes) {
    in.push_back(codes);
    expected.push_back(F16OfGolden(decoder.at(codes & 0xf)) |
                       F16OfGolden(decoder.at(codes >> 4)) << 16);
  }
  MicroCase micro =
      EachCase("e2m1x2_to_f16x2", 1, std::move(in), std::move(expected));
  micro.min_compute_capability = 100;
  return micro;
}

// Both sides of every boundary of the recorded encoder.
std::vector<uint32_t> Boundaries(const std::map<uint32_t, uint32_t>& encoder) {
  std::vector<uint32_t> words;
  for (const auto& [first, code] : encoder) {
    words.push_back(first);
    words.push_back(first - 1);
    words.push_back(first + 1);
  }
  for (const uint32_t word : SpecialF32()) words.push_back(word);
  for (const uint32_t word : RandomWords(20000, 3)) words.push_back(word);
  return words;
}

MicroCase EncodeCase(const char* file, const char* golden, int code_bits,
                     int compute_capability) {
  const std::map<uint32_t, uint32_t> encoder = GoldenEncoder(golden);
  std::vector<uint32_t> in = Paired(Boundaries(encoder));
  std::vector<uint32_t> expected;
  for (size_t i = 0; i < in.size(); i += 2) {
    expected.push_back(GoldenEncode(encoder, in[i]) |
                       GoldenEncode(encoder, in[i + 1]) << code_bits);
  }
  MicroCase micro = EachCase(file, 2, std::move(in), std::move(expected));
  micro.min_compute_capability = compute_capability;
  return micro;
}

// Every f16 pattern and every bf16 pattern, widened; their codes are at
// `golden` of encode16.bin.
MicroCase Encode16Case(const char* file, size_t golden) {
  const std::vector<uint8_t> codes = GoldenEncode16();
  std::vector<uint32_t> in;
  std::vector<uint32_t> expected;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t magnitude = bits & 0x7fff;
    const uint32_t sign = (bits & 0x8000) << 16;
    in.push_back(magnitude < 0x7c00    ? F32(DecodeNarrow(kF16, bits))
                 : magnitude == 0x7c00 ? sign | 0x7f800000
                                       : kNan);
    in.push_back(bits << 16);
    expected.push_back(codes.at(golden + bits) |
                       codes.at(golden + 0x10000 + bits) << 8);
  }
  MicroCase micro = EachCase(file, 2, std::move(in), std::move(expected));
  micro.name += "_every_16_bit";
  micro.min_compute_capability = 89;
  return micro;
}

MicroCase BytePermuteCase() {
  std::vector<uint32_t> in = RandomWords(30000, 4);
  for (uint32_t nibble = 0; nibble < 16; ++nibble) {
    for (int position = 0; position < 4; ++position) {
      in.insert(in.end(), {0x8103f27fu, 0x00ff8001u,
                           0x3210u ^ (nibble << (4 * position))});
    }
  }
  std::vector<uint32_t> expected;
  for (size_t i = 0; i < in.size(); i += 3) {
    uint8_t bytes[8];
    for (int k = 0; k < 4; ++k) {
      bytes[k] = static_cast<uint8_t>(in[i] >> 8 * k);
      bytes[k + 4] = static_cast<uint8_t>(in[i + 1] >> 8 * k);
    }
    uint32_t result = 0;
    for (int k = 3; k >= 0; --k) {
      const uint32_t selector = in[i + 2] >> 4 * k & 0xf;
      uint8_t byte = bytes[selector % 8];
      if (selector >= 8) byte = byte >= 0x80 ? 0xff : 0;
      result = result * 256 + byte;
    }
    expected.push_back(result);
  }
  return EachCase("byte_permute", 3, std::move(in), std::move(expected));
}

MicroCase BitSelectCase() {
  std::vector<uint32_t> in = RandomWords(3000, 12);
  // Every combination of three bits, in every place.
  in.insert(in.end(), {0xf0f0f0f0u, 0xccccccccu, 0xaaaaaaaau});
  std::vector<uint32_t> expected;
  for (size_t i = 0; i < in.size(); i += 3) {
    expected.push_back((in[i] & in[i + 1]) | (~in[i] & in[i + 2]));
  }
  return EachCase("bit_select", 3, std::move(in), std::move(expected));
}

MicroCase UpperHalfCase() {
  std::vector<uint32_t> in = RandomWords(1000, 11);
  in.insert(in.end(), {0u, 0xffffu, 0xffff0000u, 0x80008000u});
  std::vector<uint32_t> expected;
  for (const uint32_t word : in) expected.push_back(word >> 16);
  return EachCase("upper_half", 1, std::move(in), std::move(expected));
}

MicroCase BothHalvesCase() {
  std::vector<uint32_t> in;
  std::vector<uint32_t> expected;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    in.push_back(half);
    expected.push_back(half | half << 16);
  }
  return EachCase("both_halves", 1, std::move(in), std::move(expected));
}

}  // namespace

std::vector<MicroCase> ConvertCases() {
  return {
      PackCase("pack_f16", kF16),
      PackCase("pack_bf16", kBf16),
      WidenCase("f16_to_f32", kF16),
      WidenCase("bf16_to_f32", kBf16),
      MulF16x2Case(),
      AddF16x2Case(),
      E4m3DecodeCase(),
      EncodeCase("f32x2_to_e4m3x2", "e4m3fn_satfinite", 8, 89),
      Encode16Case("f32x2_to_e4m3x2", 0),
      EncodeCase("f32x2_to_e5m2x2", "e5m2_satfinite", 8, 89),
      Encode16Case("f32x2_to_e5m2x2", 0x20000),
      E2m1DecodeCase(),
      EncodeCase("f32x2_to_e2m1x2", "e2m1", 4, 100),
      BytePermuteCase(),
      BitSelectCase(),
      UpperHalfCase(),
      BothHalvesCase(),
  };
}

}  // namespace kvforge
