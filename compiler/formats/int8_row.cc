// int8_row: one signed byte an element, symmetric, one f32 scale a row.
//
//   scale    = max(amax, 1e-10) / 127
//   code[i]  = clamp(rint(x[i] / scale), -127, 127)
//   value[i] = code[i] * scale
#include "compiler/formats/row_rules.h"

namespace kvforge::row_rules {

QuantizedRow QuantizeInt8Row(const KvFormat& /*format*/,
                             absl::Span<const float> row,
                             const GivenScales& /*given*/) {
  constexpr int kLargest = 127;
  QuantizedRow stored;
  stored.row_scale = AtLeastAmax(AbsMax(row)) / static_cast<float>(kLargest);
  for (const float value : row) {
    const int code =
        RoundClamped(value / stored.row_scale, -kLargest, kLargest);
    stored.codes.push_back(static_cast<uint8_t>(code));
  }
  return stored;
}

std::vector<double> DequantizeInt8Row(const KvFormat& /*format*/,
                                      const QuantizedRow& stored,
                                      const GivenScales& /*given*/) {
  std::vector<double> row;
  for (const uint8_t code : stored.codes) {
    row.push_back(static_cast<double>(static_cast<int8_t>(code)) *
                  stored.row_scale);
  }
  return row;
}

}  // namespace kvforge::row_rules
