// Products of a warpgroup: every number of columns, both element types, both
// layouts of b, a in registers and in shared memory.
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/arch/micro_cases.h"
#include "tests/arch/micro_reference.h"

namespace kvforge {
namespace {

constexpr int kRows = 64;
constexpr int kDepth = 64;
constexpr int kThreads = 128;

struct ProductCase {
  int columns;
  bool bf16;
  bool by_row;
  bool shared_a;
  bool fresh;     // the first product drops what d held
  bool integers;  // every sum is exact
};

// Byte of an element in its image: lines of 128 bytes whose units of 16 are
// permuted by the line's number in its block of eight.
int ByDepth(int row, int depth) {
  return row / 8 * 1024 + row % 8 * 128 + ((depth / 8) ^ (row % 8)) * 16 +
         depth % 8 * 2;
}
int ByRow(int row, int depth) {
  return row / 64 * 8192 + depth / 8 * 1024 + depth % 8 * 128 +
         ((row % 64 / 8) ^ (depth % 8)) * 16 + row % 8 * 2;
}

void Put(std::vector<uint32_t>& words, int byte, uint32_t half) {
  words[byte / 4] |= half << (byte % 4 * 8);
}

MicroCase MakeCase(const ProductCase& c) {
  const NarrowFloat& type = c.bf16 ? kBf16 : kF16;
  const std::vector<uint32_t> random =
      RandomWords((kRows + c.columns) * kDepth + kRows * c.columns, 40);
  size_t next = 0;
  const auto draw = [&] {
    const uint32_t word = random[next++];
    if (c.integers) return static_cast<double>(word % 33) - 16;
    return DecodeNarrow(type, EncodeNarrow(type, std::ldexp(word, -31) - 1));
  };
  std::vector<double> a(kRows * kDepth);
  std::vector<double> b(c.columns * kDepth);
  std::vector<double> d(kRows * c.columns);
  for (double& x : a) x = draw();
  for (double& x : b) x = draw();
  for (double& x : d) x = draw();

  std::vector<uint32_t> a_image(kRows * 32);
  std::vector<uint32_t> b_image(
      (c.by_row ? (c.columns + 63) / 64 * 64 : c.columns) * 32);
  for (int k = 0; k < kDepth; ++k) {
    for (int row = 0; row < kRows; ++row) {
      Put(a_image, ByDepth(row, k), EncodeNarrow(type, a[row * kDepth + k]));
    }
    for (int column = 0; column < c.columns; ++column) {
      Put(b_image, c.by_row ? ByRow(column, k) : ByDepth(column, k),
          EncodeNarrow(type, b[column * kDepth + k]));
    }
  }
  MicroCase micro;
  micro.name = absl::StrCat(
      "wgmma_", c.columns, c.bf16 ? "_bf16" : "_f16",
      c.by_row ? "_by_row" : "_by_depth", c.shared_a ? "_shared" : "_registers",
      c.fresh ? "_fresh" : "", c.integers ? "" : "_fractions");
  micro.file = "wgmma";
  micro.constants =
      absl::StrCat("namespace kvforge {\nconstexpr int kColumns = ", c.columns,
                   ";\nconstexpr bool kBf16 = ", c.bf16,
                   ";\nconstexpr bool kByRow = ", c.by_row,
                   ";\nconstexpr bool kSharedA = ", c.shared_a,
                   ";\nconstexpr bool kFresh = ", c.fresh, ";\n}\n");
  micro.n = static_cast<int>(b_image.size());
  micro.min_compute_capability = 90;
  micro.max_compute_capability = 90;
  micro.in = a_image;
  micro.in.insert(micro.in.end(), b_image.begin(), b_image.end());
  // Row and column of register r of a thread, of a and of d.
  const auto row_of = [](int thread, bool second) {
    return thread / 32 * 16 + thread % 32 / 4 + (second ? 8 : 0);
  };
  for (int step = 0; step < kDepth / 16; ++step) {
    for (int thread = 0; thread < kThreads; ++thread) {
      for (int r = 0; r < 4; ++r) {
        const int k = step * 16 + thread % 4 * 2 + (r >= 2 ? 8 : 0);
        const double* const from = &a[row_of(thread, r % 2 == 1) * kDepth + k];
        micro.in.push_back(EncodeNarrow(type, from[0]) |
                           EncodeNarrow(type, from[1]) << 16);
      }
    }
  }
  for (int thread = 0; thread < kThreads; ++thread) {
    for (int i = 0; i < c.columns / 2; ++i) {
      const int row = row_of(thread, i % 4 >= 2);
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      const double before = d[row * c.columns + column];
      double sum = c.fresh ? 0 : before;
      for (int k = 0; k < kDepth; ++k) {
        sum += a[row * kDepth + k] * b[column * kDepth + k];
      }
      micro.in.push_back(std::bit_cast<uint32_t>(static_cast<float>(before)));
      micro.expected.push_back(
          std::bit_cast<uint32_t>(static_cast<float>(sum)));
    }
  }
  if (!c.integers) {
    // 65 terms of at most 1, each sum cut off below 2^-23 of at most 65.
    micro.absolute = 65 * 65 * 0x1p-23;
  }
  return micro;
}

}  // namespace

std::vector<MicroCase> ProductCases() {
  std::vector<MicroCase> cases;
  for (const int columns : {64, 80, 96, 112, 128, 192, 256}) {
    const bool bf16 = columns / 16 % 2 == 0;
    cases.push_back(MakeCase({columns, bf16, false, true, false, true}));
    cases.push_back(MakeCase({columns, !bf16, true, false, false, true}));
  }
  for (const bool bf16 : {false, true}) {
    cases.push_back(MakeCase({128, bf16, false, false, true, true}));
    cases.push_back(MakeCase({128, bf16, true, true, true, true}));
    cases.push_back(MakeCase({64, bf16, false, true, true, false}));
    cases.push_back(MakeCase({64, bf16, true, false, false, false}));
  }
  return cases;
}

}  // namespace kvforge
