#include "runtime/host/warp_products.h"

#include <cstring>
#include <limits>

namespace kvforge {
namespace {

constexpr int kRows = 16;   // of a warp
constexpr int kDepth = 16;  // of a product
constexpr int kChunk = 8;   // elements of 16 bytes

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
  // Of elements (row, depth .. depth + 7).
  uint32_t ByDepth(int row, int depth) const {
    return Swizzled(address + row / 8 * stride_bytes + row % 8 * 128 +
                    depth * 2);
  }
  // Of elements (row .. row + 7, depth).
  uint32_t ByRow(int row, int depth) const {
    return Swizzled(address + row / 64 * leading_bytes + row % 64 * 2 +
                    depth / 8 * stride_bytes + depth % 8 * 128);
  }
};

void Widen(MmaElement element, const void* bytes, float* out, int count) {
  uint32_t pairs[kDepth / 2];
  std::memcpy(pairs, bytes, count * 2);
  WidenPairs(element, pairs, out, count);
}

bool ReadByDepth(const Matrix& matrix, MmaElement element, int row,
                 SharedChunk chunk, float (&out)[kDepth]) {
  for (int depth = 0; depth < kDepth; depth += kChunk) {
    const unsigned char* const bytes = chunk(matrix.ByDepth(row, depth));
    if (bytes == nullptr) return false;
    Widen(element, bytes, out + depth, kChunk);
  }
  return true;
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
  const MmaElement element =
      request.bf16 ? MmaElement::kBf16 : MmaElement::kF16;
  float a[kRows][kDepth];
  if (request.a != nullptr) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        Widen(element, &product.a[lane][i],
              &a[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8], 2);
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
  std::vector<float> b(kDepth * columns);  // [depth, column]
  const Matrix matrix(request.b_matrix);
  if (request.by_row) {
    for (int depth = 0; depth < kDepth; ++depth) {
      for (int column = 0; column < columns; column += kChunk) {
        const unsigned char* const bytes = chunk(matrix.ByRow(column, depth));
        if (bytes == nullptr) return false;
        Widen(element, bytes, &b[depth * columns + column], kChunk);
      }
    }
  } else {
    for (int column = 0; column < columns; ++column) {
      float values[kDepth];
      if (!ReadByDepth(matrix, element, column, chunk, values)) return false;
      for (int depth = 0; depth < kDepth; ++depth) {
        b[depth * columns + column] = values[depth];
      }
    }
  }
  Accumulators& accumulators = accumulators_.at(product.accumulators);
  for (int row = 0; row < kRows; ++row) {
    float* const d = &accumulators.d[row * columns];
    if (!request.keep) std::memset(d, 0, columns * sizeof(float));
    for (int depth = 0; depth < kDepth; ++depth) {
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
