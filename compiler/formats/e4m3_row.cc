// e4m3_row: one byte an element, one f32 scale a row.
//
//   scale    = max(amax, 1e-10) / 448
//   code[i]  = e4m3(x[i] / scale)
//   value[i] = decode(code[i]) * scale
#include "compiler/formats/codec.h"
#include "compiler/formats/row_rules.h"

namespace kvforge::row_rules {

constexpr float kE4m3Max = 448;

QuantizedRow QuantizeE4m3Row(const KvFormat& /*format*/,
                             absl::Span<const float> row,
                             const GivenScales& /*given*/) {
  QuantizedRow stored;
  stored.row_scale = AtLeastAmax(AbsMax(row)) / kE4m3Max;
  for (const float value : row) {
    stored.codes.push_back(EncodeE4m3(value / stored.row_scale));
  }
  return stored;
}

std::vector<double> DequantizeE4m3Row(const KvFormat& /*format*/,
                                      const QuantizedRow& stored,
                                      const GivenScales& /*given*/) {
  std::vector<double> row;
  for (const uint8_t code : stored.codes) {
    row.push_back(static_cast<double>(DecodeE4m3(code)) * stored.row_scale);
  }
  return row;
}

}  // namespace kvforge::row_rules
