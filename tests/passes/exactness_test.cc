// Exactness: the bounds of every element against an enumeration of its values,
// and what the codec table makes of them.
#include "compiler/passes/exactness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "compiler/passes/codec_table.h"
#include "compiler/target/target.h"

namespace kvforge {
namespace {

using kv::ElementKind;

// Finite nonzero values of a small element, written down from its definition.
std::vector<double> Values(ElementKind element) {
  std::vector<double> values;
  const auto floats = [&](int exponent_bits, int stored_bits, int bias,
                          int codes) {
    for (int code = 1; code < codes; ++code) {
      const int field = code >> stored_bits;
      const int stored = code & ((1 << stored_bits) - 1);
      const double value = field == 0
                               ? std::ldexp(stored, 1 - bias - stored_bits)
                               : std::ldexp((1 << stored_bits) + stored,
                                            field - bias - stored_bits);
      values.push_back(value);
    }
    EXPECT_LE(codes, 1 << (exponent_bits + stored_bits));
  };
  switch (element) {
    case ElementKind::kE4m3:
      floats(4, 3, 7, 0x7F);  // 0x7F is NaN
      break;
    case ElementKind::kE5m2:
      floats(5, 2, 15, 0x7C);  // 0x7C is Inf
      break;
    case ElementKind::kE2m1:
      floats(2, 1, 1, 8);
      break;
    case ElementKind::kF16:
      floats(5, 10, 15, 0x7C00);
      break;
    case ElementKind::kBf16:
      floats(8, 7, 127, 0x7F80);
      break;
    case ElementKind::kI8:
      for (int i = -128; i < 128; ++i) {
        if (i) values.push_back(i);
      }
      break;
    case ElementKind::kU4:
      for (int i = 1; i < 16; ++i) values.push_back(i);
      break;
    case ElementKind::kUe8m0:
      for (int i = 0; i < 255; ++i) values.push_back(std::ldexp(1.0, i - 127));
      break;
    default:
      ADD_FAILURE() << "too many values to enumerate";
  }
  return values;
}

// The tightest bounds of a list of values.
NumberSet Measure(const std::vector<double>& values) {
  NumberSet set{0, 1 << 20, -(1 << 20)};
  for (double value : values) {
    int exponent = 0;
    // Bits of the value from its highest to its lowest set one.
    double significand = std::abs(std::frexp(value, &exponent));
    const int highest = exponent - 1;
    int bits = 0;
    while (significand != 0) {
      significand *= 2;
      significand -= std::floor(significand);
      ++bits;
    }
    set.significand_bits = std::max(set.significand_bits, bits);
    set.highest_exponent = std::max(set.highest_exponent, highest);
    set.lowest_exponent = std::min(set.lowest_exponent, highest - bits + 1);
  }
  return set;
}

std::string Text(const NumberSet& set) {
  return std::to_string(set.significand_bits) + " bits, 2^" +
         std::to_string(set.lowest_exponent) + " to 2^" +
         std::to_string(set.highest_exponent);
}

class NumbersOfElement : public ::testing::TestWithParam<ElementKind> {};

TEST_P(NumbersOfElement, AreTheEnumeratedBounds) {
  EXPECT_EQ(Text(NumbersOf(GetParam())), Text(Measure(Values(GetParam()))));
}

INSTANTIATE_TEST_SUITE_P(
    All, NumbersOfElement,
    ::testing::Values(ElementKind::kE4m3, ElementKind::kE5m2,
                      ElementKind::kE2m1, ElementKind::kF16, ElementKind::kBf16,
                      ElementKind::kI8, ElementKind::kU4, ElementKind::kUe8m0),
    [](const auto& info) { return kv::ElementText(info.param).str(); });

TEST(Product, BoundsEveryProduct) {
  for (ElementKind a : {ElementKind::kE4m3, ElementKind::kE2m1}) {
    for (ElementKind b : {ElementKind::kE4m3, ElementKind::kUe8m0}) {
      std::vector<double> products;
      for (double x : Values(a)) {
        for (double y : Values(b)) products.push_back(x * y);
      }
      const NumberSet exact = Measure(products);
      const NumberSet bound = Product(NumbersOf(a), NumbersOf(b));
      EXPECT_LE(exact.significand_bits, bound.significand_bits);
      EXPECT_EQ(exact.lowest_exponent, bound.lowest_exponent);
      EXPECT_LE(exact.highest_exponent, bound.highest_exponent);
      EXPECT_LE(bound.highest_exponent, exact.highest_exponent + 1);
    }
  }
}

TEST(FitsAnOperand, NeedsWidthAndRange) {
  const NumberSet e4m3 = NumbersOf(ElementKind::kE4m3);
  const NumberSet e2m1 = NumbersOf(ElementKind::kE2m1);
  const NumberSet ue8m0 = NumbersOf(ElementKind::kUe8m0);
  EXPECT_TRUE(FitsAnOperand(e4m3));
  EXPECT_TRUE(IsExactIn(Product(e2m1, e4m3), ElementKind::kF16));
  // Width is 2 bits, but 6 * 2^127 is above and 2^-1 * 2^-127 below.
  EXPECT_FALSE(FitsAnOperand(Product(e2m1, ue8m0)));
  // 24 bits.
  EXPECT_FALSE(FitsAnOperand(NumbersOf(ElementKind::kF32)));
  // Placed e4m3 is exact 2^-8 down, and at most 2^-15 down: 2^-24 / 2^-9.
  EXPECT_TRUE(IsExactIn(Shifted(e4m3, -15), ElementKind::kF16));
  EXPECT_FALSE(IsExactIn(Shifted(e4m3, -16), ElementKind::kF16));
  EXPECT_TRUE(IsExactIn(Shifted(e4m3, 7), ElementKind::kF16));
  EXPECT_FALSE(IsExactIn(Shifted(e4m3, 8), ElementKind::kF16));
}

TEST(CodecTable, NamesAreUniqueWithinAList) {
  for (llvm::ArrayRef<CodecFunction> list :
       {DecodeFunctions(), ScaleFunctions(), EncodeFunctions()}) {
    std::set<std::pair<std::string, ElementKind>> seen;
    for (const CodecFunction& row : list) {
      EXPECT_TRUE(seen.insert({row.name.str(), row.element}).second)
          << row.name.str();
      ASSERT_NE(FindCodecFunction(row.name), nullptr);
      EXPECT_EQ(FindCodecFunction(row.name)->header, row.header);
    }
  }
}

TEST(ChooseDecode, EveryServedGpuDecodesEveryElementThatHasAFunction) {
  for (const GpuTarget& target : kTargets) {
    if (!target.served) continue;
    for (const CodecFunction& row : DecodeFunctions()) {
      const auto choice = ChooseDecode(row.element, std::nullopt, target);
      ASSERT_TRUE(choice) << row.name.str() << " on " << target.name;
      EXPECT_TRUE(IsAvailable(*choice->codes, target));
    }
    const auto nvfp4 =
        ChooseDecode(ElementKind::kE2m1, ElementKind::kE4m3, target);
    ASSERT_TRUE(nvfp4) << target.name;
    // Hardware owes nothing, the codes' placement 2^14.
    EXPECT_EQ(nvfp4->RepayExponent(), target.has_e2m1_convert ? 0 : 14)
        << target.name;
  }
}

}  // namespace
}  // namespace kvforge
