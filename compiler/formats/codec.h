// Narrow elements on the host: exact conversions by integer arithmetic on the
// f32 bit pattern. No table, no hardware conversion, so that they can judge
// both. Tested against every f32, f16 and bf16 pattern of tests/golden/codec.
//
//   element  layout   bias  largest  NaN codes     Inf
//   e4m3     1-4-3       7      448  0x7f, 0xff    none
//   e5m2     1-5-2      15    57344  0x7d..0x7f..  0x7c, 0xfc
//   e2m1     1-2-1       1        6  none          none
//   ue8m0    0-8-0     127    2^127  0xff          none; code 0 = 2^-127
//
// Encoders round once, to nearest even, and saturate: anything beyond the
// largest value, Inf included, gives the largest. The sign of zero is kept.
#ifndef KVFORGE_COMPILER_FORMATS_CODEC_H_
#define KVFORGE_COMPILER_FORMATS_CODEC_H_

#include <cstdint>

namespace kvforge {

uint8_t EncodeE4m3(float value);  // NaN of either sign: 0x7f
uint8_t EncodeE5m2(float value);  // NaN of either sign: 0x7f
uint8_t EncodeE2m1(float value);  // low nibble; NaN: 0x7 (+6)

// The least power of two that is >= |value|, at most 2^127. NaN: 0xff.
uint8_t EncodeUe8m0Ceil(float value);

float DecodeE4m3(uint8_t code);
float DecodeE5m2(uint8_t code);
float DecodeE2m1(uint8_t code);  // looks at the low nibble only
float DecodeUe8m0(uint8_t code);

// 16-bit types: nearest even, overflow to Inf, NaN to 0x7fff.
uint16_t EncodeF16(float value);
uint16_t EncodeBf16(float value);
float DecodeF16(uint16_t code);
float DecodeBf16(uint16_t code);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_FORMATS_CODEC_H_
