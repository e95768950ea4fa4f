#include "runtime/host/mma.h"

#include <immintrin.h>

#include <bit>
#include <cstring>

namespace kvforge {
namespace {

constexpr int kM = 16;
constexpr int kN = 8;
constexpr int kK = 16;

// The fragments as matrices. Pairs are two neighbours along k.
struct Tile {
  alignas(32) uint32_t a_pairs[kM][kK / 2];
  alignas(32) uint32_t b_pairs[kN][kK / 2];  // by column
  alignas(32) float a[kM][kK];
  alignas(32) float b_columns[kN][kK];
  alignas(32) float b[kK][kN];
  alignas(32) float d[kM][kN];
};

void Gather(uint32_t* const (&operands)[32], Tile& tile) {
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4;
    const int t = lane % 4;
    const uint32_t* words = operands[lane];
    std::memcpy(&tile.d[g][2 * t], words, 8);
    std::memcpy(&tile.d[g + 8][2 * t], words + 2, 8);
    tile.a_pairs[g][t] = words[4];
    tile.a_pairs[g + 8][t] = words[5];
    tile.a_pairs[g][t + 4] = words[6];
    tile.a_pairs[g + 8][t + 4] = words[7];
    tile.b_pairs[g][t] = words[8];
    tile.b_pairs[g][t + 4] = words[9];
  }
}

void Scatter(const Tile& tile, uint32_t* const (&operands)[32]) {
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4;
    const int t = lane % 4;
    std::memcpy(operands[lane], &tile.d[g][2 * t], 8);
    std::memcpy(operands[lane] + 2, &tile.d[g + 8][2 * t], 8);
  }
}

float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
  if (magnitude >= 0x7c00u << 13) {  // infinity and NaN
    return std::bit_cast<float>(sign | 0x70000000 | magnitude);
  }
  // The multiplication renormalizes a subnormal; it is exact.
  return std::bit_cast<float>(sign | magnitude) * 0x1p112f;
}

__attribute__((target("f16c"))) void WidenF16c(const uint32_t* pairs,
                                               float* out, int count) {
  for (int i = 0; i < count; i += 8) {
    const __m128i halves =
        _mm_load_si128(reinterpret_cast<const __m128i*>(pairs + i / 2));
    _mm256_store_ps(out + i, _mm256_cvtph_ps(halves));
  }
}

void TransposeB(Tile& tile) {
  for (int n = 0; n < kN; ++n) {
    for (int k = 0; k < kK; ++k) tile.b[k][n] = tile.b_columns[n][k];
  }
}

void Multiply(Tile& tile) {
  for (int m = 0; m < kM; ++m) {
    for (int k = 0; k < kK; ++k) {
      for (int n = 0; n < kN; ++n) tile.d[m][n] += tile.a[m][k] * tile.b[k][n];
    }
  }
}

__attribute__((target("avx2,fma"))) void MultiplyFma(Tile& tile) {
  // Four rows at a time hide the latency of the sums along k.
  for (int m = 0; m < kM; m += 4) {
    __m256 d[4];
    for (int i = 0; i < 4; ++i) d[i] = _mm256_load_ps(tile.d[m + i]);
    for (int k = 0; k < kK; ++k) {
      const __m256 b = _mm256_load_ps(tile.b[k]);
      for (int i = 0; i < 4; ++i) {
        d[i] = _mm256_fmadd_ps(_mm256_broadcast_ss(&tile.a[m + i][k]), b, d[i]);
      }
    }
    for (int i = 0; i < 4; ++i) _mm256_store_ps(tile.d[m + i], d[i]);
  }
}

bool HasVectorUnits() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

}  // namespace

void WidenPairs(MmaElement element, const uint32_t* pairs, float* out,
                int count) {
  for (int i = 0; i < count / 2; ++i) {
    if (element == MmaElement::kBf16) {
      out[2 * i] = std::bit_cast<float>(pairs[i] << 16);
      out[2 * i + 1] = std::bit_cast<float>(pairs[i] & 0xffff0000u);
    } else {
      out[2 * i] = HalfToFloat(static_cast<uint16_t>(pairs[i]));
      out[2 * i + 1] = HalfToFloat(static_cast<uint16_t>(pairs[i] >> 16));
    }
  }
}

void WarpMma(MmaElement element, uint32_t* const (&operands)[32]) {
  static const bool vector_units = HasVectorUnits();
  Tile tile;
  Gather(operands, tile);
  if (vector_units && element == MmaElement::kF16) {
    WidenF16c(tile.a_pairs[0], tile.a[0], kM * kK);
    WidenF16c(tile.b_pairs[0], tile.b_columns[0], kN * kK);
  } else {
    WidenPairs(element, tile.a_pairs[0], tile.a[0], kM * kK);
    WidenPairs(element, tile.b_pairs[0], tile.b_columns[0], kN * kK);
  }
  TransposeB(tile);
  if (vector_units) {
    MultiplyFma(tile);
  } else {
    Multiply(tile);
  }
  Scatter(tile, operands);
}

}  // namespace kvforge
