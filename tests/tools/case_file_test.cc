// Recorded cases with damaged headers: an error or a case whose indices all lie
// inside its tensors, never a crash.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "tools/attention_case.h"

namespace kvforge {
namespace {

constexpr int kDamagedCopies = 2000;
constexpr uint64_t kSeed = 7;

constexpr const char* kNumbers[] = {
    "-1",         "0",     "1",     "7",          "0.5",
    "65536",      "1e308", "1e400", "2147483647", "9223372036854775807",
    "4294967296", "null",  "true",  "[]",         "\\\"x\\\""};

// One of: other bytes, another number, another length of the header, an end.
std::string Damaged(std::string bytes, std::mt19937_64& random) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  const auto below = [&](uint64_t limit) { return random() % limit; };
  switch (below(4)) {
    case 0:
      for (int i = 0; i < 3; ++i) {
        bytes[8 + below(header_bytes)] = static_cast<char>(below(256));
      }
      return bytes;
    case 1: {
      // The number at or behind some byte; the length follows.
      const size_t at =
          bytes.find_first_of("0123456789", 8 + below(header_bytes));
      if (at >= 8 + header_bytes) return bytes;
      const size_t end = bytes.find_first_not_of("0123456789.", at);
      const std::string number = kNumbers[below(std::size(kNumbers))];
      bytes.replace(at, end - at, number);
      header_bytes += number.size() - (end - at);
      std::memcpy(bytes.data(), &header_bytes, 8);
      return bytes;
    }
    case 2: {
      const uint64_t lengths[] = {0, header_bytes - 1, header_bytes + 1,
                                  bytes.size(), ~uint64_t{0}};
      std::memcpy(bytes.data(), &lengths[below(std::size(lengths))], 8);
      return bytes;
    }
    default:
      bytes.resize(below(bytes.size()));
      return bytes;
  }
}

void ExpectConsistent(const AttentionCase& problem) {
  const size_t rows =
      static_cast<size_t>(problem.tokens()) * problem.num_kv_heads;
  for (const CaseSide* side : {&problem.k, &problem.v}) {
    EXPECT_EQ(side->codes.size(),
              rows * side->format->CodeBytes(side->head_dim));
    if (side->format->row_scale != RowScale::kNone) {
      EXPECT_EQ(side->row_scale.size(), rows);
    }
  }
  EXPECT_EQ(problem.out.size(), static_cast<size_t>(problem.total_q()) *
                                    problem.num_q_heads * problem.v.head_dim);
  ASSERT_EQ(problem.q_indptr.size(), problem.kv_lens.size() + 1);
  EXPECT_LE(problem.q_indptr.back(), problem.total_q());
  for (int64_t slot : problem.slot_mapping) {
    EXPECT_LT(slot, problem.num_pages * problem.page_size);
  }
}

TEST(ReadCase, DamagedHeadersNeverCrash) {
  const std::string whole = *ReadFile(
      absl::StrCat(KVFORGE_GOLDEN_DIR,
                   "/attention/decode_e4m3_row_d64_gqa7_page1.safetensors"));
  const std::string path =
      absl::StrCat(std::filesystem::temp_directory_path().string(),
                   "/kvforge-damaged-", getpid(), ".safetensors");
  std::mt19937_64 random(kSeed);
  int refused = 0;
  for (int i = 0; i < kDamagedCopies; ++i) {
    std::ofstream(path, std::ios::binary) << Damaged(whole, random);
    const absl::StatusOr<AttentionCase> problem = ReadCase(path);
    if (problem.ok()) {
      ExpectConsistent(*problem);
    } else {
      EXPECT_NE(problem.status().message().find(path), std::string::npos);
      ++refused;
    }
  }
  std::filesystem::remove(path);
  EXPECT_GT(refused, kDamagedCopies / 2);
  EXPECT_LT(refused, kDamagedCopies);  // some damage says nothing
}

}  // namespace
}  // namespace kvforge
