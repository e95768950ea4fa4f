// e4m3_tensor, e4m3_head, e4m3_channel, e5m2_tensor: one byte an element, a
// scale that the caller gives; e4m3_channel has one for each i.
//
//   code[i]  = encode(x[i] / scale)
//   value[i] = decode(code[i]) * scale
#include "compiler/formats/codec.h"
#include "compiler/formats/row_rules.h"

namespace kvforge::row_rules {

QuantizedRow QuantizeFp8Given(const KvFormat& format,
                              absl::Span<const float> row,
                              const GivenScales& given) {
  QuantizedRow stored;
  for (size_t i = 0; i < row.size(); ++i) {
    const float quotient = row[i] / given[i];
    stored.codes.push_back(format.element == Element::kE4m3
                               ? EncodeE4m3(quotient)
                               : EncodeE5m2(quotient));
  }
  return stored;
}

std::vector<double> DequantizeFp8Given(const KvFormat& format,
                                       const QuantizedRow& stored,
                                       const GivenScales& given) {
  std::vector<double> row;
  for (size_t i = 0; i < stored.codes.size(); ++i) {
    const double value = format.element == Element::kE4m3
                             ? DecodeE4m3(stored.codes[i])
                             : DecodeE5m2(stored.codes[i]);
    row.push_back(value * given[i]);
  }
  return row;
}

}  // namespace kvforge::row_rules
