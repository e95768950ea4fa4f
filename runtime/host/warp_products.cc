#include "runtime/host/warp_products.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace kvforge {
namespace {

constexpr int kRows = 16;        // of a warp
constexpr int kDepthBytes = 32;  // of a product
constexpr int kChunkBytes = 16;  // that are read at a time
constexpr int kMostDepth = 32;   // elements of 8 bits
constexpr int kNarrowBits = 13;  // behind the largest term's first

int ElementBytes(HostElement element) { return element == kHostE4m3 ? 1 : 2; }

// A shared operand as its descriptor says (arch/wgmma_matrix.cuh).
struct Matrix {
  uint32_t address;
  uint32_t leading_bytes;
  uint32_t stride_bytes;

  explicit Matrix(uint64_t bits)
      : address((bits & 0x3fff) << 4),
        leading_bytes((bits >> 16 & 0x3fff) << 4),
        stride_bytes((bits >> 32 & 0x3fff) << 4) {}

  static uint32_t Swizzled(uint32_t address) {
    return address ^ (address >> 7 & 7) << 4;
  }
  // Of the 16 bytes of a row from `byte` on.
  uint32_t ByDepth(int row, int byte) const {
    return Swizzled(address + row / 8 * stride_bytes + row % 8 * 128 + byte);
  }
  // Of elements (row .. row + 7, depth), 16 bits each.
  uint32_t ByRow(int row, int depth) const {
    return Swizzled(address + row / 64 * leading_bytes + row % 64 * 2 +
                    depth / 8 * stride_bytes + depth % 8 * 128);
  }
};

// e4m3fn: no infinity, NaN where all bits but the sign are ones.
float WidenE4m3(unsigned char code) {
  const int exponent = code >> 3 & 15;
  const int digits = code & 7;
  float value = exponent == 0
                    ? std::ldexp(static_cast<float>(digits), -9)
                    : std::ldexp(static_cast<float>(8 + digits), exponent - 10);
  if ((code & 0x7f) == 0x7f) value = std::numeric_limits<float>::quiet_NaN();
  return (code & 0x80) != 0 ? -value : value;
}

// The elements of `bytes` bytes.
void Widen(HostElement element, const void* from, float* out, int bytes) {
  if (element == kHostE4m3) {
    static const std::vector<float> kValues = [] {
      std::vector<float> values;
      for (int code = 0; code < 256; ++code) {
        values.push_back(WidenE4m3(static_cast<unsigned char>(code)));
      }
      return values;
    }();
    const auto* codes = static_cast<const unsigned char*>(from);
    for (int i = 0; i < bytes; ++i) out[i] = kValues[codes[i]];
    return;
  }
  uint32_t pairs[kDepthBytes / 4];
  std::memcpy(pairs, from, bytes);
  WidenPairs(element == kHostBf16 ? MmaElement::kBf16 : MmaElement::kF16, pairs,
             out, bytes / 2);
}

bool ReadByDepth(const Matrix& matrix, HostElement element, int row,
                 SharedChunk chunk, float (&out)[kMostDepth]) {
  for (int byte = 0; byte < kDepthBytes; byte += kChunkBytes) {
    const unsigned char* const bytes = chunk(matrix.ByDepth(row, byte));
    if (bytes == nullptr) return false;
    Widen(element, bytes, out + byte / ElementBytes(element), kChunkBytes);
  }
  return true;
}

// start + a b as the tensor cores add products of 8-bit floats: what lies
// kNarrowBits below the first bit of the largest term is cut off each.
float NarrowSum(const float (&a)[kMostDepth], const float* b, float start) {
  float terms[kMostDepth];
  float sum = start;
  float largest = std::fabs(start);
  for (int i = 0; i < kMostDepth; ++i) {
    terms[i] = a[i] * b[i];
    sum += terms[i];
    largest = std::max(largest, std::fabs(terms[i]));
  }
  if (largest == 0 || !std::isfinite(sum)) return sum;
  const int lowest = std::ilogb(largest) - kNarrowBits;
  const double scale = std::ldexp(1.0, -lowest);
  int64_t total = static_cast<int64_t>(start * scale);
  for (const float term : terms) total += static_cast<int64_t>(term * scale);
  return static_cast<float>(std::ldexp(static_cast<double>(total), lowest));
}

}  // namespace

void WarpProducts::Add(const HostProduct* const (&products)[32]) {
  ++asked_;
  Product product = {
      .request = *products[0], .a = {}, .accumulators = products[0]->d};
  const int columns = product.request.columns;
  if (product.request.a != nullptr) {
    for (int lane = 0; lane < 32; ++lane) {
      std::memcpy(product.a[lane], products[lane]->a, sizeof(product.a[lane]));
    }
  }
  Accumulators& accumulators = accumulators_[product.accumulators];
  if (accumulators.users++ == 0) {
    accumulators.d.resize(kRows * columns);
    for (int lane = 0; lane < 32; ++lane) {
      float* const d = products[lane]->d;
      accumulators.lanes[lane] = d;
      for (int i = 0; i < columns / 2; ++i) {
        const int row = lane / 4 + i % 4 / 2 * 8;
        const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        accumulators.d[row * columns + column] = d[i];
        d[i] = std::numeric_limits<float>::quiet_NaN();
      }
    }
  }
  waiting_.push_back(product);
}

bool WarpProducts::Wait(size_t pending, int warp, SharedChunk chunk) {
  begun_ = false;
  if (group_ends_.size() <= pending) return true;
  const size_t groups = group_ends_.size() - pending;
  const size_t done = group_ends_[groups - 1];
  for (size_t i = 0; i < done; ++i) {
    if (!Run(waiting_.front(), warp, chunk)) return false;
    waiting_.pop_front();
  }
  group_ends_.erase(group_ends_.begin(), group_ends_.begin() + groups);
  for (size_t& end : group_ends_) end -= done;
  return true;
}

bool WarpProducts::Run(const Product& product, int warp, SharedChunk chunk) {
  const HostProduct& request = product.request;
  const int columns = request.columns;
  const HostElement element = request.element;
  const int depth_count = kDepthBytes / ElementBytes(element);
  const int word_elements = 4 / ElementBytes(element);
  float a[kRows][kMostDepth];
  if (request.a != nullptr) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        Widen(element, &product.a[lane][i],
              &a[lane / 4 + i % 2 * 8]
                [lane % 4 * word_elements + i / 2 * depth_count / 2],
              4);
      }
    }
  } else {
    const Matrix matrix(request.a_matrix);
    for (int row = 0; row < kRows; ++row) {
      if (!ReadByDepth(matrix, element, warp * kRows + row, chunk, a[row])) {
        return false;
      }
    }
  }
  // Sums of 16-bit products run over columns, narrow ones over depth.
  const int of_column = element == kHostE4m3 ? depth_count : 1;
  const int of_depth = element == kHostE4m3 ? 1 : columns;
  std::vector<float> b(depth_count * columns);
  const Matrix matrix(request.b_matrix);
  if (request.by_row) {
    constexpr int kChunk = kChunkBytes / 2;
    for (int depth = 0; depth < depth_count; ++depth) {
      for (int column = 0; column < columns; column += kChunk) {
        const unsigned char* const bytes = chunk(matrix.ByRow(column, depth));
        if (bytes == nullptr) return false;
        float values[kChunk];
        Widen(element, bytes, values, kChunkBytes);
        for (int i = 0; i < kChunk; ++i) {
          b[(column + i) * of_column + depth * of_depth] = values[i];
        }
      }
    }
  } else {
    for (int column = 0; column < columns; ++column) {
      float values[kMostDepth];
      if (!ReadByDepth(matrix, element, column, chunk, values)) return false;
      for (int depth = 0; depth < depth_count; ++depth) {
        b[column * of_column + depth * of_depth] = values[depth];
      }
    }
  }
  Accumulators& accumulators = accumulators_.at(product.accumulators);
  for (int row = 0; row < kRows; ++row) {
    float* const d = &accumulators.d[row * columns];
    if (!request.keep) std::memset(d, 0, columns * sizeof(float));
    if (element == kHostE4m3) {
      for (int column = 0; column < columns; ++column) {
        d[column] = NarrowSum(a[row], &b[column * depth_count], d[column]);
      }
      continue;
    }
    for (int depth = 0; depth < depth_count; ++depth) {
      const float x = a[row][depth];
      const float* const y = &b[depth * columns];
      for (int column = 0; column < columns; ++column)
        d[column] += x * y[column];
    }
  }
  if (--accumulators.users > 0) return true;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < columns / 2; ++i) {
      const int row = lane / 4 + i % 4 / 2 * 8;
      const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      accumulators.lanes[lane][i] = accumulators.d[row * columns + column];
    }
  }
  accumulators_.erase(product.accumulators);
  return true;
}

}  // namespace kvforge
