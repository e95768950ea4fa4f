// When a number survives in another type: significand width and exponent range,
// computed from the types' fields.
#ifndef KVFORGE_COMPILER_PASSES_EXACTNESS_H_
#define KVFORGE_COMPILER_PASSES_EXACTNESS_H_

#include "compiler/dialect/kv_types.h"

namespace kvforge {

// Bounds on the finite nonzero values of a set: each is an integer of at most
// `significand_bits` bits times 2^e, its lowest set bit at or above
// 2^lowest_exponent, its highest at or below 2^highest_exponent.
struct NumberSet {
  int significand_bits;
  int lowest_exponent;
  int highest_exponent;
  bool operator==(const NumberSet&) const = default;
};

// e4m3: 4 bits, 2^-9 (the smallest subnormal), 2^8 (448 = 1.75 * 2^8).
NumberSet NumbersOf(kv::ElementKind element);

// All products of a value of each.
NumberSet Product(const NumberSet& a, const NumberSet& b);

// All values times 2^exponent.
NumberSet Shifted(const NumberSet& set, int exponent);

// True if every value of the set is a value of `type`.
bool IsExactIn(const NumberSet& set, kv::ElementKind type);

// True if f16 or bf16 can be the operand type of every value of the set.
bool FitsAnOperand(const NumberSet& set);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_PASSES_EXACTNESS_H_
