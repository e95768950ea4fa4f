// Products of a warpgroup: every number of columns, all element types, both
// layouts of b, a in registers and in shared memory.
#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/arch/micro_cases.h"
#include "tests/arch/micro_reference.h"

namespace kvforge {
namespace {

constexpr int kRows = 64;
constexpr int kLineBytes = 128;  // of a row of an operand
constexpr int kSteps = 4;        // products along the sum
constexpr int kThreads = 128;
// e4m3 as far as it is drawn: below its largest, where a NaN would follow.
constexpr NarrowFloat kE4m3 = {3, 4, 7, 0x7f};

struct ProductElement {
  const char* name;    // as the case has it
  const char* device;  // the function of arch::Wgmma
  const NarrowFloat* type;
  int bytes;
  int integers;  // magnitudes up to this are drawn where sums are exact
};
constexpr ProductElement kHalf = {"_f16", "F16", &kF16, 2, 16};
constexpr ProductElement kBrain = {"_bf16", "Bf16", &kBf16, 2, 16};
// 128 products of at most 16 stay below 2^13.
constexpr ProductElement kEight = {"_e4m3", "E4m3", &kE4m3, 1, 4};

struct ProductCase {
  int columns;
  ProductElement element;
  bool by_row;
  bool shared_a;
  bool fresh;     // the first product drops what d held
  bool integers;  // every sum is exact
};

// Byte of an element in its image: lines of 128 bytes whose units of 16 are
// permuted by the line's number in its block of eight.
int ByDepth(int row, int depth, int bytes) {
  const int inside = depth * bytes;
  return row / 8 * 1024 + row % 8 * 128 + ((inside / 16) ^ (row % 8)) * 16 +
         inside % 16;
}
int ByRow(int row, int depth) {
  return row / 64 * 8192 + depth / 8 * 1024 + depth % 8 * 128 +
         ((row % 64 / 8) ^ (depth % 8)) * 16 + row % 8 * 2;
}

void Put(std::vector<uint32_t>& words, int byte, uint32_t bits) {
  words[byte / 4] |= bits << (byte % 4 * 8);
}

MicroCase MakeCase(const ProductCase& c) {
  const NarrowFloat& type = *c.element.type;
  const int bytes = c.element.bytes;
  const int depth = kLineBytes / bytes;
  const std::vector<uint32_t> random =
      RandomWords((kRows + c.columns) * depth + kRows * c.columns, 40);
  size_t next = 0;
  const auto draw = [&] {
    const uint32_t word = random[next++];
    if (c.integers) {
      return static_cast<double>(word % (2 * c.element.integers + 1)) -
             c.element.integers;
    }
    return DecodeNarrow(type, EncodeNarrow(type, std::ldexp(word, -31) - 1));
  };
  std::vector<double> a(kRows * depth);
  std::vector<double> b(c.columns * depth);
  std::vector<double> d(kRows * c.columns);
  for (double& x : a) x = draw();
  for (double& x : b) x = draw();
  for (double& x : d) x = draw();

  std::vector<uint32_t> a_image(kRows * 32);
  std::vector<uint32_t> b_image(
      (c.by_row ? (c.columns + 63) / 64 * 64 : c.columns) * 32);
  for (int k = 0; k < depth; ++k) {
    for (int row = 0; row < kRows; ++row) {
      Put(a_image, ByDepth(row, k, bytes),
          EncodeNarrow(type, a[row * depth + k]));
    }
    for (int column = 0; column < c.columns; ++column) {
      Put(b_image, c.by_row ? ByRow(column, k) : ByDepth(column, k, bytes),
          EncodeNarrow(type, b[column * depth + k]));
    }
  }
  MicroCase micro;
  micro.name = absl::StrCat(
      "wgmma_", c.columns, c.element.name, c.by_row ? "_by_row" : "_by_depth",
      c.shared_a ? "_shared" : "_registers", c.fresh ? "_fresh" : "",
      c.integers ? "" : "_fractions");
  micro.file = "wgmma";
  micro.constants =
      absl::StrCat("namespace kvforge {\nconstexpr int kColumns = ", c.columns,
                   ";\nenum class Element { F16, Bf16, E4m3 };\n"
                   "constexpr Element kElement = Element::",
                   c.element.device, ";\nconstexpr bool kByRow = ", c.by_row,
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
  const int word_elements = 4 / bytes;
  for (int step = 0; step < kSteps; ++step) {
    for (int thread = 0; thread < kThreads; ++thread) {
      for (int r = 0; r < 4; ++r) {
        const int k = step * depth / kSteps + thread % 4 * word_elements +
                      (r >= 2 ? depth / kSteps / 2 : 0);
        const double* const from = &a[row_of(thread, r % 2 == 1) * depth + k];
        uint32_t word = 0;
        for (int i = 0; i < word_elements; ++i) {
          word |= EncodeNarrow(type, from[i]) << (8 * bytes * i);
        }
        micro.in.push_back(word);
      }
    }
  }
  double largest = 0;  // of all sums on their way
  for (int thread = 0; thread < kThreads; ++thread) {
    for (int i = 0; i < c.columns / 2; ++i) {
      const int row = row_of(thread, i % 4 >= 2);
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      const double before = d[row * c.columns + column];
      double sum = c.fresh ? 0 : before;
      for (int k = 0; k < depth; ++k) {
        sum += a[row * depth + k] * b[column * depth + k];
        largest = std::max(largest, std::fabs(sum));
      }
      micro.in.push_back(std::bit_cast<uint32_t>(static_cast<float>(before)));
      micro.expected.push_back(
          std::bit_cast<uint32_t>(static_cast<float>(sum)));
    }
  }
  if (!c.integers) {
    // 16 bit: 65 terms of at most 1, each sum cut off below 2^-23 of at most
    // 65. 8 bit: each product of 33 terms cuts each off below 2^-13 of the
    // largest, which is below twice the largest sum.
    micro.absolute =
        bytes == 2 ? 65 * 65 * 0x1p-23 : kSteps * 33 * 0x1p-13 * 2 * largest;
  }
  return micro;
}

}  // namespace

std::vector<MicroCase> ProductCases() {
  std::vector<MicroCase> cases;
  for (const int columns : {64, 80, 96, 112, 128, 192, 256}) {
    const bool first = columns / 16 % 2 == 0;
    const ProductElement& one = first ? kBrain : kHalf;
    const ProductElement& other = first ? kHalf : kBrain;
    cases.push_back(MakeCase({columns, one, false, true, false, true}));
    cases.push_back(MakeCase({columns, other, true, false, false, true}));
    cases.push_back(MakeCase({columns, kEight, false, first, !first, true}));
  }
  for (const ProductElement& element : {kHalf, kBrain}) {
    cases.push_back(MakeCase({128, element, false, false, true, true}));
    cases.push_back(MakeCase({128, element, true, true, true, true}));
    cases.push_back(MakeCase({64, element, false, true, true, false}));
    cases.push_back(MakeCase({64, element, true, false, false, false}));
  }
  for (const bool shared_a : {false, true}) {
    cases.push_back(MakeCase({128, kEight, false, shared_a, shared_a, true}));
    cases.push_back(MakeCase({64, kEight, false, shared_a, !shared_a, false}));
  }
  return cases;
}

}  // namespace kvforge
