#include "compiler/formats/codec.h"

#include <bit>

namespace kvforge {
namespace {

constexpr int kF32MantissaBits = 23;
constexpr int kF32Bias = 127;
constexpr uint32_t kF32Inf = 0x7f800000;
constexpr uint32_t kF32Nan = 0x7fffffff;

// A sign, `exponent_bits` and `mantissa_bits`, with subnormals.
struct FloatLayout {
  int exponent_bits;
  int mantissa_bits;
  constexpr int Bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int SignShift() const { return exponent_bits + mantissa_bits; }
};
constexpr FloatLayout kE4m3 = {4, 3};
constexpr FloatLayout kE5m2 = {5, 2};
constexpr FloatLayout kE2m1 = {2, 1};
constexpr FloatLayout kF16 = {5, 10};

uint32_t Magnitude(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffff;
}

uint32_t Sign(float value) { return std::bit_cast<uint32_t>(value) >> 31; }

// value / 2^shift, rounded to nearest even; shift >= 1.
uint32_t ShiftRoundEven(uint32_t value, int shift) {
  if (shift > 31) return 0;
  const uint32_t odd = (value >> shift) & 1;
  const uint32_t half_less_one = (1u << (shift - 1)) - 1;
  return (value + half_less_one + odd) >> shift;
}

// Magnitude code of a finite f32 magnitude, as if the exponent had no upper
// end: the caller saturates.
uint32_t RoundTo(FloatLayout layout, uint32_t magnitude) {
  const int exponent =
      static_cast<int>(magnitude >> kF32MantissaBits) - kF32Bias;
  const int least_exponent = 1 - layout.Bias();
  const int dropped_bits = kF32MantissaBits - layout.mantissa_bits;
  if (exponent >= least_exponent) {
    // A carry out of the mantissa raises the exponent by itself.
    const uint32_t rebiased =
        magnitude -
        (static_cast<uint32_t>(kF32Bias - layout.Bias()) << kF32MantissaBits);
    return ShiftRoundEven(rebiased, dropped_bits);
  }
  if (magnitude < (1u << kF32MantissaBits)) return 0;  // f32 subnormal
  const uint32_t significand =
      (magnitude & ((1u << kF32MantissaBits) - 1)) | (1u << kF32MantissaBits);
  return ShiftRoundEven(significand, dropped_bits + least_exponent - exponent);
}

uint8_t EncodeSaturating(FloatLayout layout, uint32_t largest_code,
                         uint32_t nan_code, float value) {
  const uint32_t magnitude = Magnitude(value);
  if (magnitude > kF32Inf) return static_cast<uint8_t>(nan_code);
  uint32_t code =
      magnitude == kF32Inf ? largest_code : RoundTo(layout, magnitude);
  if (code > largest_code) code = largest_code;
  return static_cast<uint8_t>(Sign(value) << layout.SignShift() | code);
}

// Value of a code that is neither Inf nor NaN.
float DecodeFinite(FloatLayout layout, uint32_t code) {
  const uint32_t sign = (code >> layout.SignShift() & 1) << 31;
  uint32_t exponent =
      code >> layout.mantissa_bits & ((1u << layout.exponent_bits) - 1);
  uint32_t mantissa = code & ((1u << layout.mantissa_bits) - 1);
  const uint32_t leading_one = 1u << layout.mantissa_bits;
  int f32_exponent = static_cast<int>(exponent) - layout.Bias() + kF32Bias;
  if (exponent == 0) {
    if (mantissa == 0) return std::bit_cast<float>(sign);
    ++f32_exponent;
    while ((mantissa & leading_one) == 0) {
      mantissa <<= 1;
      --f32_exponent;
    }
    mantissa &= leading_one - 1;
  }
  return std::bit_cast<float>(
      sign | static_cast<uint32_t>(f32_exponent) << kF32MantissaBits |
      mantissa << (kF32MantissaBits - layout.mantissa_bits));
}

// A layout whose highest exponent means Inf and NaN, as in IEEE 754.
float DecodeIeee(FloatLayout layout, uint32_t code) {
  const uint32_t inf = ((1u << layout.exponent_bits) - 1)
                       << layout.mantissa_bits;
  const uint32_t magnitude = code & ((1u << layout.SignShift()) - 1);
  if (magnitude > inf) return std::bit_cast<float>(kF32Nan);
  if (magnitude < inf) return DecodeFinite(layout, code);
  const uint32_t sign = (code >> layout.SignShift() & 1) << 31;
  return std::bit_cast<float>(sign | kF32Inf);
}

}  // namespace

uint8_t EncodeE4m3(float value) {
  return EncodeSaturating(kE4m3, 0x7e, 0x7f, value);
}

uint8_t EncodeE5m2(float value) {
  return EncodeSaturating(kE5m2, 0x7b, 0x7f, value);
}

uint8_t EncodeE2m1(float value) {
  return EncodeSaturating(kE2m1, 0x7, 0x7, value);
}

uint8_t EncodeUe8m0Ceil(float value) {
  constexpr uint32_t kLargest = 0xfe;
  constexpr uint32_t kLeast = 0x00400000;  // 2^-127, subnormal in f32
  const uint32_t magnitude = Magnitude(value);
  if (magnitude > kF32Inf) return 0xff;
  const uint32_t exponent = magnitude >> kF32MantissaBits;
  const uint32_t rest = magnitude & ((1u << kF32MantissaBits) - 1);
  if (exponent == 0) return rest > kLeast ? 1 : 0;
  const uint32_t code = exponent + (rest > 0 ? 1 : 0);
  return static_cast<uint8_t>(code > kLargest ? kLargest : code);
}

float DecodeE4m3(uint8_t code) {
  if ((code & 0x7f) == 0x7f) return std::bit_cast<float>(kF32Nan);
  return DecodeFinite(kE4m3, code);
}

float DecodeE5m2(uint8_t code) { return DecodeIeee(kE5m2, code); }

float DecodeE2m1(uint8_t code) { return DecodeFinite(kE2m1, code & 0xf); }

float DecodeUe8m0(uint8_t code) {
  if (code == 0xff) return std::bit_cast<float>(kF32Nan);
  if (code == 0) return std::bit_cast<float>(0x00400000u);
  return std::bit_cast<float>(static_cast<uint32_t>(code) << kF32MantissaBits);
}

uint16_t EncodeF16(float value) {
  constexpr uint32_t kInf = 0x7c00;
  const uint32_t magnitude = Magnitude(value);
  if (magnitude > kF32Inf) return 0x7fff;
  uint32_t code = magnitude == kF32Inf ? kInf : RoundTo(kF16, magnitude);
  if (code > kInf) code = kInf;
  return static_cast<uint16_t>(Sign(value) << kF16.SignShift() | code);
}

uint16_t EncodeBf16(float value) {
  if (Magnitude(value) > kF32Inf) return 0x7fff;
  // bf16 is the upper half of f32: a carry into Inf is the right overflow.
  const uint32_t code = ShiftRoundEven(Magnitude(value), 16);
  return static_cast<uint16_t>(Sign(value) << 15 | code);
}

float DecodeF16(uint16_t code) { return DecodeIeee(kF16, code); }

float DecodeBf16(uint16_t code) {
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
}

}  // namespace kvforge
