// Loads and stores, barriers over shared memory, asynchronous copies. Blocks
// have 64 threads.
#include "tests/arch/micro_cases.h"
#include "tests/arch/micro_reference.h"

namespace kvforge {
namespace {

constexpr uint32_t kThreads = 64;

MicroCase MemoryCase(const char* file, int n, int blocks,
                     std::vector<uint32_t> in, std::vector<uint32_t> expected) {
  MicroCase micro;
  micro.name = file;
  micro.file = file;
  micro.n = n;
  micro.in = std::move(in);
  micro.expected = std::move(expected);
  micro.grid_blocks = blocks;
  return micro;
}

MicroCase GlobalAccessCase() {
  std::vector<uint32_t> in = RandomWords(2 * kThreads * 8, 30);
  std::vector<uint32_t> expected = in;
  // The last byte of 32 stays what the runner put there, 0xde of 0xdeadbeef.
  for (size_t i = 7; i < expected.size(); i += 8) {
    expected[i] = (expected[i] & 0x00ffffff) | 0xde000000;
  }
  return MemoryCase("global_access", 0, 2, std::move(in), std::move(expected));
}

MicroCase SharedAccessCase() {
  std::vector<uint32_t> in = RandomWords(2 * kThreads * 8, 31);
  std::vector<uint32_t> expected = in;
  return MemoryCase("shared_access", 0, 2, std::move(in), std::move(expected));
}

// `span` neighbours are reversed an odd number of times; one is added each.
MicroCase ReverseCase(const char* file, uint32_t span) {
  constexpr int kRounds = 7;
  std::vector<uint32_t> in = RandomWords(3 * kThreads, 32);
  std::vector<uint32_t> expected;
  for (uint32_t i = 0; i < in.size(); ++i) {
    expected.push_back(in[i / span * span + span - 1 - i % span] + kRounds);
  }
  return MemoryCase(file, kRounds, 3, std::move(in), std::move(expected));
}

MicroCase CpAsyncCase(const char* file, uint32_t words) {
  constexpr int kBlocks = 3;
  const uint32_t block_words = kThreads * (words + 1);
  std::vector<uint32_t> in = RandomWords(kBlocks * block_words, 33);
  std::vector<uint32_t> expected;
  for (int block = 0; block < kBlocks; ++block) {
    uint32_t* const first = &in[block * block_words];
    for (uint32_t t = 0; t < kThreads; ++t) {
      uint32_t& valid = first[kThreads * words + t];
      valid %= 3;
      for (uint32_t i = 0; i < words; ++i) {
        expected.push_back(valid != 0 ? first[t * words + i] : 0);
      }
    }
  }
  return MemoryCase(file, 0, kBlocks, std::move(in), std::move(expected));
}

MicroCase CpAsyncWaitCase() {
  constexpr int kSteps = 20;
  std::vector<uint32_t> in = RandomWords(kSteps * kThreads, 34);
  std::vector<uint32_t> expected;
  for (uint32_t i = 0; i < in.size(); ++i) expected.push_back(in[i ^ 63]);
  return MemoryCase("cp_async_wait", kSteps, 1, std::move(in),
                    std::move(expected));
}

// The first 32 of 64 words as ReverseCase, the others 7 more.
MicroCase PartSyncCase() {
  constexpr int kRounds = 7;
  std::vector<uint32_t> in = RandomWords(3 * kThreads, 35);
  std::vector<uint32_t> expected;
  for (uint32_t i = 0; i < in.size(); ++i) {
    const bool part = i % kThreads < 32;
    expected.push_back(in[part ? i ^ 31 : i] + kRounds);
  }
  return MemoryCase("part_sync", kRounds, 3, std::move(in),
                    std::move(expected));
}

// Each turn adds a pair's words to the other pair's, reversed.
MicroCase NamedSyncCase() {
  constexpr int kTurns = 5;
  std::vector<uint32_t> in = RandomWords(3 * 2 * kThreads, 39);
  std::vector<uint32_t> expected;
  for (uint32_t block = 0; block < 3; ++block) {
    const uint32_t* const words = &in[block * 2 * kThreads];
    std::vector<uint32_t> sums(kThreads, 0);
    for (int turn = 0; turn < 2 * kTurns; ++turn) {
      std::vector<uint32_t> next;
      for (uint32_t t = 0; t < kThreads; ++t) {
        next.push_back(sums[kThreads - 1 - t] + words[turn % 2 * kThreads + t]);
      }
      sums = next;
    }
    expected.insert(expected.end(), sums.begin(), sums.end());
  }
  return MemoryCase("named_sync", kTurns, 3, std::move(in),
                    std::move(expected));
}

// Bits that no thread of a pair of warps has, that one has and that all have.
MicroCase NamedAnyCase() {
  constexpr int kVotes = 8;
  std::vector<uint32_t> in(3 * 2 * kThreads, 0x80);
  std::vector<uint32_t> expected(in.size());
  for (uint32_t pair = 0; pair < 6; ++pair) {
    in[pair * kThreads + 17 * pair % kThreads] |= 1u << pair;
    for (uint32_t t = 0; t < kThreads; ++t) {
      expected[pair * kThreads + t] = 0x80 | 1u << pair;
    }
  }
  return MemoryCase("named_any", kVotes, 3, std::move(in), std::move(expected));
}

MicroCase BulkCopyCase() {
  constexpr int kCopies = 16;
  std::vector<uint32_t> in = RandomWords(kCopies * 64, 41);
  std::vector<uint32_t> expected = in;
  MicroCase micro =
      MemoryCase("bulk_copy", kCopies, 1, std::move(in), std::move(expected));
  micro.min_compute_capability = 90;
  return micro;
}

MicroCase MbarrierCase() {
  constexpr int kSteps = 21;
  std::vector<uint32_t> in = RandomWords(kSteps * 32, 36);
  std::vector<uint32_t> expected;
  for (uint32_t i = 0; i < in.size(); ++i) expected.push_back(in[i ^ 31]);
  return MemoryCase("mbarrier", kSteps, 1, std::move(in), std::move(expected));
}

// A box of 16 slots of one head and page of an array [page, slot, head, line,
// byte], whose rows have `lines` lines of `line` bytes, from slot `slot` on.
// Word w of the box lies where the swizzle puts it.
MicroCase TensorCopyCase(const char* name, uint32_t line, uint32_t lines,
                         int swizzle, uint32_t slot) {
  constexpr uint32_t kPages = 2, kSlots = 32, kHeads = 3;
  constexpr uint32_t kPage = 1, kHead = 2;
  const uint32_t row = line * lines;
  std::vector<uint32_t> in =
      RandomWords(kPages * kSlots * kHeads * row / 4, 38);
  // The first words, which this box does not touch, say where it is.
  const uint32_t at[5] = {0, slot, 0, kHead, kPage};
  for (int i = 0; i < 5; ++i) in[i] = at[i];
  std::vector<uint32_t> expected(16 * row / 4);
  for (uint32_t l = 0; l < lines; ++l) {
    for (uint32_t s = 0; s < 16; ++s) {
      for (uint32_t b = 0; b < line; b += 4) {
        uint32_t to = (l * 16 + s) * line + b;
        if (swizzle == 128) to ^= (to / 128 % 8) * 16;
        if (swizzle == 64) to ^= (to / 128 % 4) * 16;
        const uint32_t from =
            ((kPage * kSlots + slot + s) * kHeads + kHead) * row + l * line + b;
        expected[to / 4] = slot + s < kSlots ? in[from / 4] : 0;
      }
    }
  }
  MicroCase micro = MemoryCase("tensor_copy", static_cast<int>(16 * row), 1,
                               std::move(in), std::move(expected));
  micro.name = name;
  micro.min_compute_capability = 90;
  micro.box =
      TensorBox{.strides = {kHeads * row, line, row, kSlots * kHeads * row},
                .sizes = {line, kSlots, lines, kHeads, kPages},
                .box = {line, 16, lines, 1, 1},
                .swizzle_bytes = swizzle};
  return micro;
}

// A counter starts at 5; what is written is the sum before the last of n ones.
MicroCase AddGlobalCase() {
  constexpr int kOnes = 9;
  std::vector<uint32_t> in = RandomWords(3 * kThreads, 37);
  std::vector<uint32_t> expected;
  for (size_t block = 0; block < 3; ++block) {
    uint32_t sum = 5 + kOnes - 1;
    for (uint32_t i = 0; i < kThreads; ++i) sum += in[block * kThreads + i];
    expected.push_back(sum);
  }
  return MemoryCase("add_global", kOnes, 3, std::move(in), std::move(expected));
}

}  // namespace

std::vector<MicroCase> MemoryCases() {
  return {
      GlobalAccessCase(),
      SharedAccessCase(),
      MemoryCase("shared_base", 0, 1, {0}, std::vector<uint32_t>(kThreads, 0)),
      ReverseCase("block_sync", kThreads),
      ReverseCase("warp_sync", 32),
      CpAsyncCase("cp_async_4", 1),
      CpAsyncCase("cp_async_8", 2),
      CpAsyncCase("cp_async_16", 4),
      CpAsyncWaitCase(),
      PartSyncCase(),
      MbarrierCase(),
      NamedSyncCase(),
      NamedAnyCase(),
      BulkCopyCase(),
      TensorCopyCase("tensor_copy_128", 128, 2, 128, 16),
      TensorCopyCase("tensor_copy_64", 64, 3, 64, 4),
      TensorCopyCase("tensor_copy_dense", 80, 1, 0, 0),
      TensorCopyCase("tensor_copy_past_the_end", 128, 1, 128, 24),
      AddGlobalCase(),
  };
}

}  // namespace kvforge
