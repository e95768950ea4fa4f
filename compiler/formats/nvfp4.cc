// nvfp4_row, nvfp4: e2m1 codes, an e4m3 scale per 16 elements, and a second
// f32 scale r: of the row (nvfp4_row) or given (nvfp4).
//
//   r        = max(amax, 1e-10) / 2688            nvfp4_row; 2688 = 448 * 6
//   block[j] = e4m3(min(amax16 / (6 * r), 448))
//   code[i]  = e2m1(x[i] / (block[j] * r)), 0 where block[j] * r is 0 or NaN
//   value[i] = decode(code[i]) * decode(block[j]) * r
//
// The quotient takes the stored, rounded block scale.
#include <cmath>

#include "compiler/formats/codec.h"
#include "compiler/formats/row_rules.h"

namespace kvforge::row_rules {
namespace {

constexpr float kE2m1Max = 6;
constexpr float kE4m3Max = 448;

bool HasRowScale(const KvFormat& format) {
  return format.row_scale != RowScale::kNone;
}

}  // namespace

QuantizedRow QuantizeNvfp4(const KvFormat& format, absl::Span<const float> row,
                           const GivenScales& given) {
  QuantizedRow stored;
  stored.codes.resize(format.CodeBytes(static_cast<int>(row.size())));
  float r = given[0];
  if (HasRowScale(format)) {
    r = AtLeastAmax(AbsMax(row)) / (kE4m3Max * kE2m1Max);
    stored.row_scale = r;
  }
  for (size_t begin = 0; begin < row.size(); begin += format.block) {
    const absl::Span<const float> block = row.subspan(begin, format.block);
    const float ratio = AbsMax(block) / (kE2m1Max * r);
    const uint8_t block_code = EncodeE4m3(ratio > kE4m3Max ? kE4m3Max : ratio);
    stored.block_scales.push_back(block_code);
    const float scale = DecodeE4m3(block_code) * r;
    if (scale == 0 || std::isnan(scale)) continue;
    for (size_t i = 0; i < block.size(); ++i) {
      SetNibble(stored.codes, begin + i, EncodeE2m1(block[i] / scale));
    }
  }
  return stored;
}

std::vector<double> DequantizeNvfp4(const KvFormat& format,
                                    const QuantizedRow& stored,
                                    const GivenScales& given) {
  const double r = HasRowScale(format) ? stored.row_scale : given[0];
  std::vector<double> row(stored.codes.size() * 2);
  for (size_t i = 0; i < row.size(); ++i) {
    const double block = DecodeE4m3(stored.block_scales[i / format.block]);
    row[i] = DecodeE2m1(Nibble(stored.codes, i)) * block * r;
  }
  return row;
}

}  // namespace kvforge::row_rules
