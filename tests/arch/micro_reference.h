// Narrow floats by arithmetic in double, and the recorded conversions of
// tests/golden/codec: references for the micro-kernels.
#ifndef KVFORGE_TESTS_ARCH_MICRO_REFERENCE_H_
#define KVFORGE_TESTS_ARCH_MICRO_REFERENCE_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace kvforge {

struct NarrowFloat {
  int mantissa_bits;
  int exponent_bits;
  int bias;
  uint32_t infinity;  // magnitude bits; what overflow gives
};
inline constexpr NarrowFloat kF16 = {10, 5, 15, 0x7c00};
inline constexpr NarrowFloat kBf16 = {7, 8, 127, 0x7f80};

// Rounds to nearest even: bits with sign. Not for NaN.
uint32_t EncodeNarrow(const NarrowFloat& type, double value);
// The value of bits that are neither infinity nor NaN.
double DecodeNarrow(const NarrowFloat& type, uint32_t bits);

// f16 or bf16 bits of an f32, a NaN as the hardware gives it: 0x7fff.
uint32_t EncodeNarrowF32(const NarrowFloat& type, uint32_t f32_bits);

// f32 bits: each, with both neighbours and both signs.
std::vector<uint32_t> WithNeighbours(const std::vector<uint32_t>& magnitudes);
// Zeros, subnormals, one, the largest, infinities, NaNs with payloads.
std::vector<uint32_t> SpecialF32();
std::vector<uint32_t> RandomWords(int count, uint32_t seed);

// A table of tests/golden/codec/encode_f32_<name>.tsv: first f32 bits of each
// run of inputs to its code.
std::map<uint32_t, uint32_t> GoldenEncoder(const std::string& name);
uint32_t GoldenEncode(const std::map<uint32_t, uint32_t>& encoder,
                      uint32_t f32_bits);
// f32 bits of each code, from decode.tsv.
std::map<uint32_t, uint32_t> GoldenDecoder(const std::string& format);
// encode16.bin: codes of every f16 pattern in e4m3, of every bf16 pattern in
// e4m3, then both in e5m2.
std::vector<uint8_t> GoldenEncode16();

}  // namespace kvforge

#endif  // KVFORGE_TESTS_ARCH_MICRO_REFERENCE_H_
