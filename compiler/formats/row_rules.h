// What the row codecs share, and the rules of each family: one file each.
#ifndef KVFORGE_COMPILER_FORMATS_ROW_RULES_H_
#define KVFORGE_COMPILER_FORMATS_ROW_RULES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compiler/formats/format.h"
#include "compiler/formats/row_codec.h"

namespace kvforge::row_rules {

// Smaller maxima count as this one, so that a zero row has a finite scale.
inline constexpr float kLeastAmax = 1e-10f;

// Largest |x|; NaN if one of them is NaN; Inf counts as FLT_MAX.
float AbsMax(absl::Span<const float> values);

// max(value, kLeastAmax), with NaN kept.
float AtLeastAmax(float value);

// Reads and writes 4-bit codes: element 2i in the low nibble of byte i.
uint8_t Nibble(absl::Span<const uint8_t> codes, size_t element);
void SetNibble(std::vector<uint8_t>& codes, size_t element, uint8_t code);

// rint(quotient) clamped to [low, high]; NaN gives 0.
int RoundClamped(float quotient, int low, int high);

using Quantize = QuantizedRow (*)(const KvFormat& format,
                                  absl::Span<const float> row,
                                  const GivenScales& given);
using Dequantize = std::vector<double> (*)(const KvFormat& format,
                                           const QuantizedRow& stored,
                                           const GivenScales& given);

// plain.cc: bf16, f16
QuantizedRow QuantizePlain(const KvFormat&, absl::Span<const float>,
                           const GivenScales&);
std::vector<double> DequantizePlain(const KvFormat&, const QuantizedRow&,
                                    const GivenScales&);
// fp8_given.cc: e4m3_tensor, e4m3_head, e4m3_channel, e5m2_tensor
QuantizedRow QuantizeFp8Given(const KvFormat&, absl::Span<const float>,
                              const GivenScales&);
std::vector<double> DequantizeFp8Given(const KvFormat&, const QuantizedRow&,
                                       const GivenScales&);
// e4m3_row.cc
QuantizedRow QuantizeE4m3Row(const KvFormat&, absl::Span<const float>,
                             const GivenScales&);
std::vector<double> DequantizeE4m3Row(const KvFormat&, const QuantizedRow&,
                                      const GivenScales&);
// int8_row.cc
QuantizedRow QuantizeInt8Row(const KvFormat&, absl::Span<const float>,
                             const GivenScales&);
std::vector<double> DequantizeInt8Row(const KvFormat&, const QuantizedRow&,
                                      const GivenScales&);
// int4_row.cc
QuantizedRow QuantizeInt4Row(const KvFormat&, absl::Span<const float>,
                             const GivenScales&);
std::vector<double> DequantizeInt4Row(const KvFormat&, const QuantizedRow&,
                                      const GivenScales&);
// nvfp4.cc: nvfp4_row, nvfp4
QuantizedRow QuantizeNvfp4(const KvFormat&, absl::Span<const float>,
                           const GivenScales&);
std::vector<double> DequantizeNvfp4(const KvFormat&, const QuantizedRow&,
                                    const GivenScales&);
// mx.cc: mxfp8, mxfp4
QuantizedRow QuantizeMx(const KvFormat&, absl::Span<const float>,
                        const GivenScales&);
std::vector<double> DequantizeMx(const KvFormat&, const QuantizedRow&,
                                 const GivenScales&);

}  // namespace kvforge::row_rules

#endif  // KVFORGE_COMPILER_FORMATS_ROW_RULES_H_
