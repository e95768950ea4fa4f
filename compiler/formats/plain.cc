// bf16, f16: 16-bit values stored as given; other sources round to nearest
// even. No scales.
//
//   element i at bytes 2i, 2i + 1, low byte first
#include "compiler/formats/codec.h"
#include "compiler/formats/row_rules.h"

namespace kvforge::row_rules {

QuantizedRow QuantizePlain(const KvFormat& format, absl::Span<const float> row,
                           const GivenScales& /*given*/) {
  QuantizedRow stored;
  for (const float value : row) {
    const uint16_t code =
        format.element == Element::kBf16 ? EncodeBf16(value) : EncodeF16(value);
    stored.codes.push_back(static_cast<uint8_t>(code & 0xff));
    stored.codes.push_back(static_cast<uint8_t>(code >> 8));
  }
  return stored;
}

std::vector<double> DequantizePlain(const KvFormat& format,
                                    const QuantizedRow& stored,
                                    const GivenScales& /*given*/) {
  std::vector<double> row;
  for (size_t i = 0; i + 1 < stored.codes.size(); i += 2) {
    const uint16_t code =
        static_cast<uint16_t>(stored.codes[i] | stored.codes[i + 1] << 8);
    row.push_back(format.element == Element::kBf16 ? DecodeBf16(code)
                                                   : DecodeF16(code));
  }
  return row;
}

}  // namespace kvforge::row_rules
