#include "compiler/passes/exactness.h"

#include <algorithm>

namespace kvforge {
namespace {

using kv::ElementKind;

// What the highest exponent field holds.
enum class Top {
  kReserved,  // Inf and NaN only
  kNumbers,   // numbers; at most one significand is NaN
};

// Fields of a binary floating-point type with subnormals.
constexpr NumberSet Float(int exponent_bits, int stored_significand_bits,
                          int bias, Top top) {
  const int highest_field =
      (1 << exponent_bits) - (top == Top::kReserved ? 2 : 1);
  return {stored_significand_bits + 1, 1 - bias - stored_significand_bits,
          highest_field - bias};
}

}  // namespace

NumberSet NumbersOf(ElementKind element) {
  switch (element) {
    case ElementKind::kF32:
      return Float(8, 23, 127, Top::kReserved);
    case ElementKind::kBf16:
      return Float(8, 7, 127, Top::kReserved);
    case ElementKind::kF16:
      return Float(5, 10, 15, Top::kReserved);
    case ElementKind::kE4m3:
      return Float(4, 3, 7, Top::kNumbers);
    case ElementKind::kE5m2:
      return Float(5, 2, 15, Top::kReserved);
    case ElementKind::kE2m1:
      return Float(2, 1, 1, Top::kNumbers);
    case ElementKind::kI8:
      return {7, 0, 7};  // -128 is one bit, all others have at most 7
    case ElementKind::kU4:
      return {4, 0, 3};
    case ElementKind::kUe8m0:
      return {1, -127, 127};
  }
  llvm_unreachable("every ElementKind has a set");
}

NumberSet Product(const NumberSet& a, const NumberSet& b) {
  // A power of two moves the other factor; two wider significands can carry.
  const bool moves = a.significand_bits == 1 || b.significand_bits == 1;
  return {moves ? std::max(a.significand_bits, b.significand_bits)
                : a.significand_bits + b.significand_bits,
          a.lowest_exponent + b.lowest_exponent,
          a.highest_exponent + b.highest_exponent + (moves ? 0 : 1)};
}

NumberSet Shifted(const NumberSet& set, int exponent) {
  return {set.significand_bits, set.lowest_exponent + exponent,
          set.highest_exponent + exponent};
}

bool IsExactIn(const NumberSet& set, ElementKind type) {
  const NumberSet values = NumbersOf(type);
  return set.significand_bits <= values.significand_bits &&
         set.lowest_exponent >= values.lowest_exponent &&
         set.highest_exponent <= values.highest_exponent;
}

bool FitsAnOperand(const NumberSet& set) {
  return IsExactIn(set, ElementKind::kF16) ||
         IsExactIn(set, ElementKind::kBf16);
}

}  // namespace kvforge
