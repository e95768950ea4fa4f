#include "compiler/formats/row_rules.h"

#include <cfloat>
#include <cmath>

namespace kvforge::row_rules {

float AbsMax(absl::Span<const float> values) {
  float amax = 0;
  for (const float value : values) {
    if (std::isnan(value)) return std::nanf("");
    if (std::fabs(value) > amax) amax = std::fabs(value);
  }
  return amax > FLT_MAX ? FLT_MAX : amax;
}

float AtLeastAmax(float value) {
  return value < kLeastAmax ? kLeastAmax : value;
}

uint8_t Nibble(absl::Span<const uint8_t> codes, size_t element) {
  return codes[element / 2] >> (element % 2 * 4) & 0xf;
}

void SetNibble(std::vector<uint8_t>& codes, size_t element, uint8_t code) {
  const int shift = element % 2 * 4;
  uint8_t& byte = codes[element / 2];
  byte = static_cast<uint8_t>((byte & ~(0xf << shift)) | (code & 0xf) << shift);
}

int RoundClamped(float quotient, int low, int high) {
  if (std::isnan(quotient)) return 0;
  const float rounded = std::nearbyintf(quotient);
  if (rounded < static_cast<float>(low)) return low;
  if (rounded > static_cast<float>(high)) return high;
  return static_cast<int>(rounded);
}

}  // namespace kvforge::row_rules
