#include "compiler/formats/row_codec.h"

#include <cassert>
#include <cstddef>

#include "compiler/formats/row_rules.h"

namespace kvforge {
namespace {

struct RowRule {
  absl::string_view format;
  row_rules::Quantize quantize;
  row_rules::Dequantize dequantize;
};

constexpr RowRule kRowRules[] = {
    {"bf16", row_rules::QuantizePlain, row_rules::DequantizePlain},
    {"f16", row_rules::QuantizePlain, row_rules::DequantizePlain},
    {"e4m3_tensor", row_rules::QuantizeFp8Given, row_rules::DequantizeFp8Given},
    {"e4m3_head", row_rules::QuantizeFp8Given, row_rules::DequantizeFp8Given},
    {"e4m3_channel", row_rules::QuantizeFp8Given,
     row_rules::DequantizeFp8Given},
    {"e4m3_row", row_rules::QuantizeE4m3Row, row_rules::DequantizeE4m3Row},
    {"e5m2_tensor", row_rules::QuantizeFp8Given, row_rules::DequantizeFp8Given},
    {"int8_row", row_rules::QuantizeInt8Row, row_rules::DequantizeInt8Row},
    {"int4_row", row_rules::QuantizeInt4Row, row_rules::DequantizeInt4Row},
    {"nvfp4_row", row_rules::QuantizeNvfp4, row_rules::DequantizeNvfp4},
    {"nvfp4", row_rules::QuantizeNvfp4, row_rules::DequantizeNvfp4},
    {"mxfp8", row_rules::QuantizeMx, row_rules::DequantizeMx},
    {"mxfp4", row_rules::QuantizeMx, row_rules::DequantizeMx},
};

constexpr bool HasRuleForEachFormat() {
  for (const KvFormat& format : kFormats) {
    bool found = false;
    for (const RowRule& rule : kRowRules) {
      found = found || rule.format == format.name;
    }
    if (!found) return false;
  }
  return true;
}
static_assert(HasRuleForEachFormat(), "each format needs a row of kRowRules");

const RowRule& RuleOf(const KvFormat& format) {
  for (const RowRule& rule : kRowRules) {
    if (rule.format == format.name) return rule;
  }
  assert(false && "a format that is not in kFormats");
  return kRowRules[0];
}

}  // namespace

QuantizedRow QuantizeRow(const KvFormat& format, absl::Span<const float> row,
                         const GivenScales& given) {
  return RuleOf(format).quantize(format, row, given);
}

std::vector<double> DequantizeRow(const KvFormat& format,
                                  const QuantizedRow& stored,
                                  const GivenScales& given) {
  return RuleOf(format).dequantize(format, stored, given);
}

}  // namespace kvforge
