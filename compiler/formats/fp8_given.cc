// e4m3_tensor, e4m3_head, e5m2_tensor: one byte an element, a scale that the
// caller gives.
//
//   code[i]  = encode(x[i] / scale)
//   value[i] = decode(code[i]) * scale
#include "compiler/formats/codec.h"
#include "compiler/formats/row_rules.h"

namespace kvforge::row_rules {

QuantizedRow QuantizeFp8Given(const KvFormat& format,
                              absl::Span<const float> row, float given_scale) {
  QuantizedRow stored;
  for (const float value : row) {
    const float quotient = value / given_scale;
    stored.codes.push_back(format.element == Element::kE4m3
                               ? EncodeE4m3(quotient)
                               : EncodeE5m2(quotient));
  }
  return stored;
}

std::vector<double> DequantizeFp8Given(const KvFormat& format,
                                       const QuantizedRow& stored,
                                       float given_scale) {
  std::vector<double> row;
  for (const uint8_t code : stored.codes) {
    const double value =
        format.element == Element::kE4m3 ? DecodeE4m3(code) : DecodeE5m2(code);
    row.push_back(value * given_scale);
  }
  return row;
}

}  // namespace kvforge::row_rules
