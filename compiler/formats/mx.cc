// mxfp8, mxfp4: e4m3 or e2m1 codes, a power of two (ue8m0) per 32 elements.
//
//   block[j] = ue8m0_ceil(amax32 / 448), or / 6 for e2m1
//   code[i]  = encode(x[i] / 2^block[j])
//   value[i] = decode(code[i]) * 2^block[j]
//
// A block of zeros takes the smallest scale, code 0 = 2^-127, which is
// subnormal in f32.
#include <cmath>

#include "compiler/formats/codec.h"
#include "compiler/formats/row_rules.h"

namespace kvforge::row_rules {

QuantizedRow QuantizeMx(const KvFormat& format, absl::Span<const float> row,
                        const GivenScales& /*given*/) {
  const bool bytes = format.element == Element::kE4m3;
  const float largest = bytes ? 448.0f : 6.0f;
  QuantizedRow stored;
  stored.codes.resize(format.CodeBytes(static_cast<int>(row.size())));
  for (size_t begin = 0; begin < row.size(); begin += format.block) {
    const absl::Span<const float> block = row.subspan(begin, format.block);
    const uint8_t block_code = EncodeUe8m0Ceil(AbsMax(block) / largest);
    stored.block_scales.push_back(block_code);
    const float scale = DecodeUe8m0(block_code);
    for (size_t i = 0; i < block.size(); ++i) {
      const float quotient = block[i] / scale;
      if (bytes) {
        stored.codes[begin + i] = EncodeE4m3(quotient);
      } else if (!std::isnan(scale)) {
        SetNibble(stored.codes, begin + i, EncodeE2m1(quotient));
      }
    }
  }
  return stored;
}

std::vector<double> DequantizeMx(const KvFormat& format,
                                 const QuantizedRow& stored,
                                 const GivenScales& /*given*/) {
  const bool bytes = format.element == Element::kE4m3;
  std::vector<double> row(stored.codes.size() * (bytes ? 1 : 2));
  for (size_t i = 0; i < row.size(); ++i) {
    const double value = bytes ? DecodeE4m3(stored.codes[i])
                               : DecodeE2m1(Nibble(stored.codes, i));
    row[i] = value * DecodeUe8m0(stored.block_scales[i / format.block]);
  }
  return row;
}

}  // namespace kvforge::row_rules
