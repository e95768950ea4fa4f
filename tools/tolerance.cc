#include "tools/tolerance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/formats/codec.h"
#include "tools/paged_cache.h"

namespace kvforge {
namespace {

struct Bounds {
  double out;  // of the row's largest
  double lse_absolute;
  double lse_relative;
};
constexpr Bounds kF16Operands = {1e-3, 1e-3, 1e-5};
constexpr Bounds kBf16Operands = {4e-3, 1e-3, 1e-5};
constexpr Bounds kFp8Operands = {1.2e-1, 5e-2, 2e-2};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const Bounds& BoundsOf(const AttentionCase& problem) {
  if (problem.compute == Compute::kFp8) return kFp8Operands;
  const bool bf16_operands = problem.k.format->element == Element::kBf16 ||
                             problem.v.format->element == Element::kBf16;
  return bf16_operands ? kBf16Operands : kF16Operands;
}

double Load(DType type, const uint8_t* bytes) {
  if (type == DType::kF32) {
    float value;
    std::memcpy(&value, bytes, 4);
    return value;
  }
  uint16_t code;
  std::memcpy(&code, bytes, 2);
  return type == DType::kBf16 ? DecodeBf16(code) : DecodeF16(code);
}

// The distance, 0 where both are NaN.
double Error(double got, double expected) {
  if (std::isnan(got) && std::isnan(expected)) return 0;
  return got == expected ? 0 : std::abs(got - expected);
}

// error / bound, where no error at all is needed to meet a bound of 0.
double Ratio(double error, double bound) {
  if (std::isnan(error)) return kInfinity;
  if (error == 0) return 0;
  return bound > 0 ? error / bound : kInfinity;
}

}  // namespace

double HalfUlp(DType type, double value) {
  const int significand_bits = type == DType::kBf16  ? 8
                               : type == DType::kF16 ? 11
                                                     : 24;
  const int lowest_exponent = type == DType::kF16 ? -13 : -125;
  int exponent = lowest_exponent;
  if (value != 0) std::frexp(value, &exponent);
  exponent = std::max(exponent, lowest_exponent);
  return std::ldexp(1.0, exponent - significand_bits - 1);
}

ErrorReport CompareAttention(const AttentionCase& problem,
                             absl::Span<const uint8_t> out,
                             absl::Span<const float> lse, bool padding_kept) {
  const Bounds& bounds = BoundsOf(problem);
  const int64_t dim = problem.v.head_dim;
  const int64_t heads = problem.num_q_heads;
  const int element_bytes = DTypeBytes(problem.out_type);
  const int64_t real_rows = problem.q_indptr.back() * heads;
  ErrorReport report;
  for (int64_t row = 0; row < real_rows; ++row) {
    const float* expected = problem.out.data() + row * dim;
    double row_max = 0;
    for (int64_t d = 0; d < dim; ++d) {
      row_max = std::max<double>(row_max, std::abs(expected[d]));
    }
    // Without a visible key the result is exactly 0.
    const bool empty = row_max == 0 && std::isinf(problem.lse[row]);
    for (int64_t d = 0; d < dim; ++d) {
      const double got =
          Load(problem.out_type, out.data() + (row * dim + d) * element_bytes);
      const double bound =
          empty ? 0
                : bounds.out * row_max + HalfUlp(problem.out_type, expected[d]);
      const double ratio = Ratio(Error(got, expected[d]), bound);
      if (ratio <= report.out_ratio) continue;
      report.out_ratio = ratio;
      report.worst_out =
          absl::StrCat("row ", row / heads, " head ", row % heads, " element ",
                       d, ": ", got, ", expected ", expected[d]);
    }
    const double wanted = problem.lse[row];
    const double ratio = Ratio(
        Error(lse[row], wanted),
        std::isinf(wanted)
            ? 0
            : bounds.lse_absolute + bounds.lse_relative * std::abs(wanted));
    if (ratio <= report.lse_ratio) continue;
    report.lse_ratio = ratio;
    report.worst_lse =
        absl::StrCat("lse of row ", row / heads, " head ", row % heads, ": ",
                     lse[row], ", expected ", wanted);
  }
  for (size_t i = real_rows * dim * element_bytes;
       padding_kept && i < out.size(); ++i) {
    if (out[i] == kPoison) continue;
    report.out_ratio = kInfinity;
    report.worst_out = absl::StrCat(
        "padding row ", i / (dim * element_bytes) / heads, " was written");
    break;
  }
  return report;
}

}  // namespace kvforge
