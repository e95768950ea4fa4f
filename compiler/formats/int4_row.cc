// int4_row: unsigned 4-bit codes, asymmetric, an f32 scale and an f32 minimum a
// row.
//
//   scale    = max(max - min, 1e-10) / 15
//   code[i]  = clamp(rint((x[i] - min) / scale), 0, 15)
//   value[i] = code[i] * scale + min
//
// min, max and their difference are kept within +-FLT_MAX; of two zeros -0 is
// the smaller.
#include <cfloat>
#include <cmath>

#include "compiler/formats/row_rules.h"

namespace kvforge::row_rules {

QuantizedRow QuantizeInt4Row(const KvFormat& format,
                             absl::Span<const float> row,
                             const GivenScales& /*given*/) {
  constexpr int kLargest = 15;
  QuantizedRow stored;
  stored.codes.resize(format.CodeBytes(static_cast<int>(row.size())));
  float low = FLT_MAX;
  float high = -FLT_MAX;
  for (const float value : row) {
    if (std::isnan(value)) {
      stored.row_scale = stored.row_min = std::nanf("");
      return stored;
    }
    if (value < low || (value == low && std::signbit(value))) low = value;
    if (value > high) high = value;
  }
  low = low < -FLT_MAX ? -FLT_MAX : low;
  high = high > FLT_MAX ? FLT_MAX : high;
  const float span = high - low > FLT_MAX ? FLT_MAX : high - low;
  stored.row_scale = AtLeastAmax(span) / static_cast<float>(kLargest);
  stored.row_min = low;
  for (size_t i = 0; i < row.size(); ++i) {
    const int code =
        RoundClamped((row[i] - low) / stored.row_scale, 0, kLargest);
    SetNibble(stored.codes, i, static_cast<uint8_t>(code));
  }
  return stored;
}

std::vector<double> DequantizeInt4Row(const KvFormat& /*format*/,
                                      const QuantizedRow& stored,
                                      const GivenScales& /*given*/) {
  std::vector<double> row(stored.codes.size() * 2);
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<double>(Nibble(stored.codes, i)) * stored.row_scale +
             stored.row_min;
  }
  return row;
}

}  // namespace kvforge::row_rules
