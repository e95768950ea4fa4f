// Host codec of every format: one (token, kv head) row of head_dim elements to
// the bytes the store kernel must write for it, and back. The oracle of the
// store kernel and of every decoded cache. Exact; scalar; f32 with true
// division, in the order the format's file states.
//
//   codes         CodeBytes(head_dim) bytes; 4-bit codes two a byte, element 2i
//                 in the low nibble; 16-bit codes little endian
//   row_scale     f32, formats with a RowScale, else 0
//   row_min       f32, kF32AndMinimum, else 0
//   block_scales  BlockScaleBytes(head_dim) bytes
//
// A NaN spreads as far as the scale it enters: over the row where there is a
// row scale, over its block where there are only block scales, and no further
// than itself where the scale is given. Of the poisoned elements e4m3 codes are
// 0x7f, e2m1 and integer codes 0, and the scale decodes to NaN. Inf counts as
// FLT_MAX in a scale and saturates as an element. NaN codes decode to NaN.
#ifndef KVFORGE_COMPILER_FORMATS_ROW_CODEC_H_
#define KVFORGE_COMPILER_FORMATS_ROW_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compiler/formats/format.h"

namespace kvforge {

// The given scale of a row's elements: one for all of them, or one each.
class GivenScales {
 public:
  GivenScales(float scale) : one_(scale) {}
  GivenScales(absl::Span<const float> channels) : channels_(channels) {}
  float operator[](size_t channel) const {
    return channels_.empty() ? one_ : channels_[channel];
  }

 private:
  float one_ = 0;
  absl::Span<const float> channels_;
};

struct QuantizedRow {
  std::vector<uint8_t> codes;
  float row_scale = 0;
  float row_min = 0;
  std::vector<uint8_t> block_scales;
};

// `row` has head_dim elements, a multiple of 16 and of the format's block.
// `given` is read by formats with a GivenScale only (for kHead it is the head's
// own, for kChannel the head's channels).
QuantizedRow QuantizeRow(const KvFormat& format, absl::Span<const float> row,
                         const GivenScales& given);

// The values of a stored row: products of codes and scales in double, which
// holds all of them exactly but the sum of int4_row.
std::vector<double> DequantizeRow(const KvFormat& format,
                                  const QuantizedRow& stored,
                                  const GivenScales& given);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_FORMATS_ROW_CODEC_H_
