// f32 arithmetic: special values against special values, and at random.
#include <bit>
#include <cmath>

#include "tests/arch/micro_cases.h"
#include "tests/arch/micro_reference.h"

namespace kvforge {
namespace {

constexpr uint32_t kNan = 0x7fffffff;

bool IsNan(uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }
float Float(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t F32(double value) {
  return std::bit_cast<uint32_t>(static_cast<float>(value));
}

std::vector<uint32_t> SpecialAndRandom(int count, uint32_t seed) {
  std::vector<uint32_t> words = SpecialF32();
  for (const uint32_t word : RandomWords(count, seed)) words.push_back(word);
  return words;
}

// Order of finite and infinite values, -0 below +0, as integers.
int64_t Order(uint32_t bits) {
  const int64_t magnitude = bits & 0x7fffffff;
  return bits >> 31 ? -magnitude - 1 : magnitude;
}

enum class Extreme { kMax, kMaxNan, kMin };

MicroCase ExtremeCase(const char* file, Extreme extreme) {
  std::vector<uint32_t> in;
  for (const uint32_t x : SpecialF32()) {
    for (const uint32_t y : SpecialF32()) in.insert(in.end(), {x, y});
  }
  for (const uint32_t word : RandomWords(4000, 5)) in.push_back(word);
  std::vector<uint32_t> expected;
  for (size_t i = 0; i < in.size(); i += 2) {
    const uint32_t x = in[i];
    const uint32_t y = in[i + 1];
    if (IsNan(x) || IsNan(y)) {
      const bool keeps = extreme == Extreme::kMaxNan || (IsNan(x) && IsNan(y));
      expected.push_back(keeps ? kNan : IsNan(x) ? y : x);
    } else {
      const bool first = (Order(x) > Order(y)) == (extreme != Extreme::kMin);
      expected.push_back(first ? x : y);
    }
  }
  return EachCase(file, 2, std::move(in), std::move(expected));
}

// Integers of 24 bits times powers of two: the exact sum fits a double, so
// that there is one rounding here as well.
MicroCase FmaCase() {
  std::vector<uint32_t> in;
  const std::vector<uint32_t> random = RandomWords(60000, 6);
  for (size_t i = 0; i < random.size(); i += 3) {
    const double a = (random[i] & 0xffffff) - 0x800000;
    const double b = (random[i + 1] & 0xffffff) - 0x800000;
    const double c = (random[i + 2] & 0xffffff) - 0x800000;
    const int scale = static_cast<int>(random[i + 2] >> 24) % 24;
    in.insert(in.end(), {F32(a), F32(b), F32(std::ldexp(c, scale))});
  }
  const uint32_t specials[] = {0,          0x80000000, 0x3f800000, 0xbf800000,
                               0x7f800000, 0xff800000, 0x7fc00001, 0x7f7fffff};
  for (const uint32_t a : specials) {
    for (const uint32_t b : specials) {
      for (const uint32_t c : specials) in.insert(in.end(), {a, b, c});
    }
  }
  std::vector<uint32_t> expected;
  for (size_t i = 0; i < in.size(); i += 3) {
    const double sum =
        static_cast<double>(Float(in[i])) * Float(in[i + 1]) + Float(in[i + 2]);
    expected.push_back(std::isnan(sum) ? kNan : F32(sum));
  }
  return EachCase("fma", 3, std::move(in), std::move(expected));
}

MicroCase AbsCase() {
  std::vector<uint32_t> in = SpecialAndRandom(2000, 7);
  // A NaN may lose its payload.
  for (uint32_t& bits : in) {
    if ((bits & kNan) > 0x7f800000) bits |= kNan;
  }
  std::vector<uint32_t> expected;
  for (const uint32_t bits : in) expected.push_back(bits & 0x7fffffff);
  return EachCase("abs", 1, std::move(in), std::move(expected));
}

MicroCase BitsCase() {
  std::vector<uint32_t> in = SpecialAndRandom(2000, 8);
  std::vector<uint32_t> expected = in;
  return EachCase("bits", 1, std::move(in), std::move(expected));
}

MicroCase RoundEvenCase() {
  std::vector<uint32_t> in = SpecialAndRandom(10000, 9);
  for (int half = -600; half <= 600; ++half) {
    for (const uint32_t word : WithNeighbours({F32(std::abs(half) / 2.0)})) {
      in.push_back(word);
    }
  }
  std::vector<uint32_t> expected;
  for (const uint32_t bits : in) {
    const double x = Float(bits);
    if (IsNan(bits)) {
      expected.push_back(kNan);
    } else {
      // To the even neighbour at a tie; the sign stays.
      double whole = std::floor(std::abs(x));
      const double rest = std::abs(x) - whole;
      if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) == 1)) whole += 1;
      expected.push_back(F32(std::copysign(whole, x)));
    }
  }
  return EachCase("round_even", 1, std::move(in), std::move(expected));
}

// Integers, halves and their neighbours, and anything.
MicroCase RoundingCase(const char* file, double (*round)(double)) {
  std::vector<uint32_t> in = SpecialAndRandom(10000, 13);
  for (int half = 0; half <= 600; ++half) {
    for (const uint32_t word : WithNeighbours({F32(half / 2.0)})) {
      in.push_back(word);
    }
  }
  std::vector<uint32_t> expected;
  for (const uint32_t bits : in) {
    expected.push_back(IsNan(bits) ? kNan : F32(round(Float(bits))));
  }
  return EachCase(file, 1, std::move(in), std::move(expected));
}

// The root of an f32 in double, rounded again, is the correctly rounded one.
MicroCase SqrtCase() {
  std::vector<uint32_t> in = SpecialAndRandom(10000, 14);
  std::vector<uint32_t> expected;
  for (const uint32_t bits : in) {
    const double root = std::sqrt(static_cast<double>(Float(bits)));
    expected.push_back(std::isnan(root) ? kNan : F32(root));
  }
  return EachCase("sqrt", 1, std::move(in), std::move(expected));
}

// The results that subnormal numbers count as zero for.
uint32_t Flushed(double value) {
  const float rounded = static_cast<float>(value);
  if (std::isnan(rounded)) return kNan;
  if (std::abs(value) < 0x1p-126) return std::signbit(value) ? 0x80000000 : 0;
  return std::bit_cast<uint32_t>(rounded);
}

MicroCase Exp2Case() {
  std::vector<uint32_t> in = SpecialF32();
  for (const uint32_t word : RandomWords(20000, 10)) {
    in.push_back(F32(std::ldexp(word, -24) - 128));
  }
  std::vector<uint32_t> expected;
  for (const uint32_t bits : in) {
    const double x = Float(bits);
    expected.push_back(Flushed(std::exp2(std::abs(x) < 0x1p-126 ? 0 : x)));
  }
  MicroCase micro = EachCase("exp2", 1, std::move(in), std::move(expected));
  // PTX ISA, ex2.approx: 2 units in the last place.
  micro.relative = 0x1p-22;
  // A result that is subnormal before it is rounded may come out as 2^-126.
  micro.absolute = 0x1p-126;
  return micro;
}

MicroCase Log2Case() {
  std::vector<uint32_t> in = SpecialAndRandom(10000, 11);
  for (const uint32_t word : RandomWords(10000, 12)) {
    in.push_back(F32(std::ldexp(word, -31)));
  }
  std::vector<uint32_t> expected;
  for (const uint32_t bits : in) {
    const double x = Float(bits);
    expected.push_back(Flushed(std::log2(std::abs(x) < 0x1p-126 ? 0 : x)));
  }
  MicroCase micro = EachCase("log2", 1, std::move(in), std::move(expected));
  // PTX ISA, lg2.approx: 2^-22 absolute between 0.5 and 2, relative elsewhere.
  micro.relative = 0x1p-22;
  micro.absolute = 0x1p-22;
  return micro;
}

}  // namespace

std::vector<MicroCase> MathCases() {
  return {
      BitsCase(),
      AbsCase(),
      FmaCase(),
      ExtremeCase("max", Extreme::kMax),
      ExtremeCase("max_nan", Extreme::kMaxNan),
      ExtremeCase("min", Extreme::kMin),
      RoundEvenCase(),
      RoundingCase("floor", std::floor),
      RoundingCase("ceil", std::ceil),
      RoundingCase("trunc", std::trunc),
      SqrtCase(),
      Exp2Case(),
      Log2Case(),
  };
}

}  // namespace kvforge
