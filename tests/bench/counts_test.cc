#include "tools/bench/counts.h"

#include "gtest/gtest.h"

namespace kvforge::bench {
namespace {

struct CountCase {
  const char* name;
  int64_t bytes;
  double flops;
};

class Counts : public ::testing::TestWithParam<CountCase> {};

TEST_P(Counts, AreThoseWorkedOutByHand) {
  const CountCase& expected = GetParam();
  const auto cases = SelectCases({expected.name});
  ASSERT_TRUE(cases.ok()) << cases.status();
  EXPECT_EQ(CountedBytes((*cases)[0]), expected.bytes);
  EXPECT_DOUBLE_EQ(CountedFlops((*cases)[0]), expected.flops);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Counts,
    ::testing::Values(
        // 64 * 8192 tokens * 8 heads * 2 sides * (128 codes + 4 of scale);
        // 4 * 128 * 32 heads * 524,288 pairs.
        CountCase{"decode/e4m3_row/d128/g4/page16/b64/kv8192", 1107296256,
                  8589934592.0},
        // As many bytes with twice the query heads.
        CountCase{"decode/e4m3_row/d128/g8/page64/b64/kv8192", 1107296256,
                  17179869184.0},
        // (64 + 8 block scales + 4) * 2 * 8 * 1024.
        CountCase{"decode/nvfp4_row/d128/g4/page16/b1/kv1024", 1245184,
                  16777216.0},
        // 128 * 2 * 8 * 1024, no scale in memory.
        CountCase{"decode/e4m3_tensor/d128/g4/page16/b1/kv1024", 2097152,
                  16777216.0},
        // 256 * 2 * 8 * 1024.
        CountCase{"decode/bf16/d128/g4/page16/b1/kv1024", 4194304, 16777216.0},
        // 166,912 tokens * 2,112 bytes; 4 * 128 * 32 * 166,912.
        CountCase{"decode/e4m3_row/d128/g4/page16/b64/kv1024/skew100",
                  352518144, 2734686208.0},
        // A token: 2 * 8 * 256 read, 2 * 8 * 132 written, a slot of 8.
        CountCase{"store/e4m3_row/d128/page16/t65536", 65536 * 6216LL, 0},
        // 2 * 8 * 256 + 2 * 8 * 76 + 8.
        CountCase{"store/nvfp4_row/d128/page16/t64", 64 * 5320, 0},
        // Pairs: 8192 * 8193 / 2 = 33,558,528.
        CountCase{"extend/e4m3_row/d128/g4/page16/b1/q8192/kv8192", 17301504,
                  549822922752.0},
        // Pairs: 512 * 32768 - 512 * 511 / 2 = 16,646,400.
        CountCase{"extend/bf16/d128/g4/page16/b1/q512/kv32768", 134217728,
                  272734617600.0},
        CountCase{"launch/store", 0, 0},
        CountCase{"specialise/decode/e4m3_row", 0, 0}));

}  // namespace
}  // namespace kvforge::bench
