// Warp operations and matrices. Blocks have 64 threads unless said.
#include <bit>
#include <cmath>

#include "tests/arch/micro_cases.h"
#include "tests/arch/micro_reference.h"

namespace kvforge {
namespace {

constexpr int kThreads = 64;

MicroCase BlockCase(const char* file, int blocks, std::vector<uint32_t> in,
                    std::vector<uint32_t> expected) {
  MicroCase micro;
  micro.name = file;
  micro.file = file;
  micro.in = std::move(in);
  micro.expected = std::move(expected);
  micro.grid_blocks = blocks;
  return micro;
}

MicroCase LaunchCase() {
  constexpr int kBlocks = 5;
  std::vector<uint32_t> expected;
  for (uint32_t i = 0; i < kBlocks * kThreads; ++i) {
    expected.insert(expected.end(), {i % kThreads, i / kThreads, kBlocks});
  }
  return BlockCase("launch", kBlocks, {0}, std::move(expected));
}

MicroCase GridOrderCase() {
  std::vector<uint32_t> in = RandomWords(1000, 19);
  std::vector<uint32_t> expected;
  for (const uint32_t word : in) expected.push_back(word + 1);
  return EachCase("grid_order", 1, std::move(in), std::move(expected));
}

MicroCase ShuffleXorCase() {
  constexpr int kBlocks = 31;
  std::vector<uint32_t> in = RandomWords(kBlocks * kThreads, 20);
  std::vector<uint32_t> expected;
  for (uint32_t i = 0; i < in.size(); ++i) {
    const uint32_t block = i / kThreads;
    // A mask below 32 stays within the warp.
    expected.insert(expected.end(),
                    {in[i ^ (1 + block)], in[i ^ 2], in[i ^ block]});
  }
  return BlockCase("shuffle_xor", kBlocks, std::move(in), std::move(expected));
}

MicroCase ShuffleFromCase() {
  constexpr int kBlocks = 4;
  std::vector<uint32_t> in = RandomWords(kBlocks * kThreads * 2, 21);
  for (size_t i = 1; i < in.size(); i += 2) in[i] %= 64;  // from 32: wraps
  std::vector<uint32_t> expected;
  for (uint32_t i = 0; i < in.size() / 2; ++i) {
    const uint32_t warp = i / 32 * 32;
    const uint32_t lane = in[2 * i + 1];
    expected.insert(expected.end(),
                    {in[2 * (warp + lane % 32)], in[2 * (warp + 5)],
                     in[2 * (warp + (31 - lane) % 32)]});
  }
  return BlockCase("shuffle_from", kBlocks, std::move(in), std::move(expected));
}

// Warps with no, one, all but one and all lanes set.
MicroCase VoteCase(const char* file, bool any) {
  constexpr int kBlocks = 4;
  std::vector<uint32_t> in(kBlocks * kThreads);
  for (uint32_t i = 0; i < in.size(); ++i) {
    const uint32_t lane = i % 32;
    switch (i / 32 % 4) {
      case 0:
        in[i] = 0;
        break;
      case 1:
        in[i] = lane == i / 32 ? 7 : 0;
        break;
      case 2:
        in[i] = lane == i / 32 ? 0 : 9;
        break;
      default:
        in[i] = 1 + lane;
    }
  }
  std::vector<uint32_t> expected;
  for (uint32_t i = 0; i < in.size(); ++i) {
    const uint32_t kind = i / 32 % 4;
    expected.push_back(any ? kind != 0 : kind == 3);
  }
  return BlockCase(file, kBlocks, std::move(in), std::move(expected));
}

// Matrices of one mma: a[16][16], b[16][8], d[16][8].
struct Matrices {
  double a[16][16];
  double b[16][8];
  double d[16][8];
};

// Row and column of element `half` of register `r`, as the PTX ISA's figures
// of m16n8k16 give them.
void AppendFragments(const Matrices& m, const NarrowFloat& type,
                     std::vector<uint32_t>& words) {
  const auto pack = [&](double lo, double hi) {
    return EncodeNarrow(type, lo) | EncodeNarrow(type, hi) << 16;
  };
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2;
    const int in_group = lane % 4;
    for (int r = 0; r < 4; ++r) {
      const int row = (r == 0 || r == 2) ? group : group + 8;
      const int column = in_group * 2 + (r >= 2 ? 8 : 0);
      words.push_back(pack(m.a[row][column], m.a[row][column + 1]));
    }
    for (int r = 0; r < 2; ++r) {
      const int row = in_group * 2 + (r == 1 ? 8 : 0);
      words.push_back(pack(m.b[row][group], m.b[row + 1][group]));
    }
    for (int r = 0; r < 4; ++r) {
      const float d = static_cast<float>(
          m.d[r < 2 ? group : group + 8][in_group * 2 + (r & 1)]);
      words.push_back(std::bit_cast<uint32_t>(d));
    }
  }
}

void AppendProduct(const Matrices& m, std::vector<uint32_t>& words) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int r = 0; r < 4; ++r) {
      const int row = r < 2 ? lane / 4 : lane / 4 + 8;
      const int column = lane % 4 * 2 + r % 2;
      double sum = m.d[row][column];
      for (int k = 0; k < 16; ++k) sum += m.a[row][k] * m.b[k][column];
      words.push_back(std::bit_cast<uint32_t>(static_cast<float>(sum)));
    }
  }
}

// Small integers: every sum is exact. Otherwise values in [-1, 1] that the
// type holds.
MicroCase MmaCase(const char* file, const NarrowFloat& type, bool integers) {
  constexpr int kBlocks = 16;
  const std::vector<uint32_t> random = RandomWords(kBlocks * 512, 22);
  size_t next = 0;
  const auto draw = [&] {
    const uint32_t word = random[next++];
    if (integers) return static_cast<double>(word % 33) - 16;
    const double value = std::ldexp(word, -31) - 1;
    return DecodeNarrow(type, EncodeNarrow(type, value));
  };
  std::vector<uint32_t> in;
  std::vector<uint32_t> expected;
  for (int block = 0; block < kBlocks; ++block) {
    Matrices m;
    for (auto& row : m.a) {
      for (double& x : row) x = draw();
    }
    for (auto& row : m.b) {
      for (double& x : row) x = draw();
    }
    for (auto& row : m.d) {
      for (double& x : row) x = draw();
    }
    AppendFragments(m, type, in);
    AppendProduct(m, expected);
  }
  MicroCase micro =
      BlockCase(file, kBlocks, std::move(in), std::move(expected));
  if (!integers) {
    micro.name = std::string(file) + "_fractions";
    // 17 terms of at most 1, each sum cut off below 2^-23 of at most 17.
    micro.absolute = 17 * 17 * 0x1p-23;
  }
  return micro;
}

uint16_t Half(const std::vector<uint32_t>& words, int row, int column) {
  return static_cast<uint16_t>(words[row * 4 + column / 2] >>
                               (column % 2 * 16));
}

MicroCase LdMatrixCase(const char* file, bool transposed) {
  std::vector<uint32_t> in = RandomWords(128, 23);
  std::vector<uint32_t> expected;
  for (int lane = 0; lane < 32; ++lane) {
    for (int m = 0; m < 4; ++m) {
      uint32_t pair = 0;
      for (int half = 0; half < 2; ++half) {
        int row = lane / 4;
        int column = lane % 4 * 2 + half;
        if (transposed) std::swap(row, column);
        const int stored_row = 5 * (8 * m + row) % 32;
        pair |= static_cast<uint32_t>(Half(in, stored_row, column))
                << (16 * half);
      }
      expected.push_back(pair);
    }
  }
  return BlockCase(file, 1, std::move(in), std::move(expected));
}

MicroCase MoveMatrixCase() {
  std::vector<uint32_t> in = RandomWords(2 * kThreads, 24);
  std::vector<uint32_t> expected;
  for (uint32_t i = 0; i < in.size(); ++i) {
    const std::vector<uint32_t> matrix(in.begin() + i / 32 * 32,
                                       in.begin() + i / 32 * 32 + 32);
    const int row = static_cast<int>(i % 32) / 4;
    const int column = static_cast<int>(i % 4) * 2;
    expected.push_back(Half(matrix, column, row) |
                       static_cast<uint32_t>(Half(matrix, column + 1, row))
                           << 16);
  }
  return BlockCase("move_matrix", 2, std::move(in), std::move(expected));
}

}  // namespace

std::vector<MicroCase> WarpCases() {
  return {
      LaunchCase(),
      GridOrderCase(),
      ShuffleXorCase(),
      ShuffleFromCase(),
      VoteCase("warp_any", true),
      VoteCase("warp_all", false),
      MmaCase("mma_f16", kF16, true),
      MmaCase("mma_f16", kF16, false),
      MmaCase("mma_bf16", kBf16, true),
      MmaCase("mma_bf16", kBf16, false),
      LdMatrixCase("ld_matrix4", false),
      LdMatrixCase("ld_matrix4_trans", true),
      MoveMatrixCase(),
  };
}

}  // namespace kvforge
