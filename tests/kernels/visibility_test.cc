// ALiBi, custom masks and block-sparse selections on the CPU: against the
// double-precision reference, and against sums worked out by hand.
//
// Tokens that no query may see are never stored: NaN codes and NaN scales stay
// in their slots, and buffers end at pages that fault when touched.
#include <climits>
#include <cmath>
#include <limits>

#include "kernels/extend.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

CaseOptions Options(std::vector<int> q_lens, std::vector<int> kv_lens) {
  CaseOptions options;
  options.name = "visibility";
  options.head_dim = 64;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.page_size = 16;
  options.q_lens = std::move(q_lens);
  options.kv_lens = std::move(kv_lens);
  return options;
}

float Zero(int64_t, int, int) { return 0; }

// A draft tree over a prefix: the last q_len keys are the queries' own, and
// query t sees the prefix and its ancestors t, (t - 1) / 2, ... 0.
std::function<bool(int, int, int)> Tree(const CaseOptions& options) {
  return [q_lens = options.q_lens, kv_lens = options.kv_lens](int b, int t,
                                                              int j) {
    const int node = j - (kv_lens[b] - q_lens[b]);
    if (node < 0) return true;
    for (int at = t; at > node; at = (at - 1) / 2) {
      if ((at - 1) / 2 == node) return true;
    }
    return t == node;
  };
}

// Bits without a pattern; query t = 1 sees nothing, and every 5th key is seen
// by none.
bool Scattered(int b, int t, int j) {
  return t != 1 && j % 5 != 3 && (t * 131 + j * 71 + b * 17) % 7 < 3;
}

class Alibi : public ::testing::TestWithParam<const char*> {};

TEST_P(Alibi, MatchesTheReference) {
  CaseOptions options = Options({1, 3, 16, 1}, {90, 50, 16, 0});
  options.format = GetParam();
  options.alibi = true;
  ExpectCaseRight(options);
  options.softcap = 3;
  options.sinks = true;
  options.window = 20;
  options.num_q_heads = 14;  // group 7
  ExpectCaseRight(options, 2);
}

INSTANTIATE_TEST_SUITE_P(Formats, Alibi,
                         ::testing::Values("bf16", "e4m3_tensor", "e4m3_row",
                                           "nvfp4_row"),
                         [](const auto& info) { return info.param; });

TEST(AlibiScores, LaterKeysGetMoreWithoutCausal) {
  CaseOptions options = Options({2, 70}, {40, 70});
  options.alibi = true;
  options.causal = false;
  ExpectCaseRight(options);
}

// Zero scores leave the bias alone: lse = ln(sum of e^(-slope * d) over
// distances d < n), a geometric sum. Head h of 4 has slope 2^(-2 (h + 1)).
TEST(AlibiScores, AreSlopeTimesDistanceInNaturalUnits) {
  CaseOptions options = Options({1}, {70});
  options.alibi = true;
  options.q = Zero;
  Bench bench(Generated(options));
  bench.Store();
  const AttentionArgs args = bench.target->AttentionArguments();
  for (bool decode : {false, true}) {
    KVFORGE_EXPECT_OK(decode ? bench.target->Decode(*bench.Decoder(), args, 2)
                             : bench.target->Extend(
                                   *bench.Kernel(KernelKind::kExtend), args));
    const std::vector<float> lse = *bench.target->Lse();
    for (int h = 0; h < 4; ++h) {
      const double slope = std::exp2(-2.0 * (h + 1));
      const double sum = (1 - std::exp(-slope * 70)) / (1 - std::exp(-slope));
      EXPECT_NEAR(lse[h], std::log(sum), 1e-4) << h;
    }
  }
}

class CustomMask : public ::testing::TestWithParam<const char*> {};

TEST_P(CustomMask, TreeOverAPrefix) {
  // Lengths whose rows begin at every bit of a byte; 70 queries are extend's.
  for (std::vector<int> q_lens : {std::vector<int>{5, 16, 1}, {7, 70, 1}}) {
    CaseOptions options = Options(q_lens, {61, 101, 33});
    options.format = GetParam();
    options.mask = Tree(options);
    ExpectCaseRight(options);
  }
}

TEST_P(CustomMask, ScatteredBitsAndKeysThatNoQuerySees) {
  for (std::vector<int> q_lens : {std::vector<int>{3, 16, 2}, {90, 3, 40}}) {
    CaseOptions options = Options(q_lens, {133, 17, 64});
    options.format = GetParam();
    options.mask = Scattered;
    ExpectCaseRight(options, 1);
    options.num_q_heads = 14;  // group 7: a tile begins inside a token
    options.sinks = true;
    options.softcap = 10;
    options.window = 30;
    options.alibi = true;
    ExpectCaseRight(options, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CustomMask,
                         ::testing::Values("bf16", "e4m3_tensor", "e4m3_row",
                                           "nvfp4_row"),
                         [](const auto& info) { return info.param; });

// Each page has its own shape of copy; a byte of the mask past its last faults.
TEST(CustomMaskBits, PagesAndLengths) {
  for (int page_size : {1, 48, 64}) {
    for (int kv_len : {1, 7, 8, 9, 31, 33}) {
      CaseOptions options = Options({2, 5}, {kv_len, kv_len + 40});
      options.page_size = page_size;
      options.mask = Scattered;
      ExpectCaseRight(options, page_size % 3, 1);
    }
  }
}

// A mask of no bits has no byte to read, whatever is fetched ahead.
TEST(CustomMaskBits, AreNotReadWithoutKeys) {
  for (int q_len : {1, 2, 70}) {
    CaseOptions options = Options({q_len}, {0});
    options.mask = Scattered;
    ExpectCaseRight(options);
    options.window = 17;
    ExpectCaseRight(options);
  }
}

// The mask replaces the causal rule: a query sees later keys if it says so.
TEST(CustomMaskBits, AllOnesIsFullAttention) {
  CaseOptions full = Options({3, 65}, {40, 65});
  full.causal = false;
  CaseOptions custom = full;
  custom.mask = [](int, int, int) { return true; };
  const AttentionCase expected = Generated(full);
  const AttentionCase masked = Generated(custom);
  EXPECT_EQ(masked.out, expected.out);
  ExpectCaseRight(custom);
}

// Zero scores: lse counts the visible keys.
TEST(CustomMaskBits, AreCountedFromTheLowBit) {
  CaseOptions options = Options({2}, {11});
  options.q = Zero;
  // Bits 11 * t + j: row 0 has keys 0 and 10, row 1 has key 3 (bit 14).
  options.mask = [](int, int t, int j) {
    return t == 0 ? j == 0 || j == 10 : j == 3;
  };
  const AttentionCase problem = Generated(options);
  EXPECT_THAT(problem.custom_mask, ::testing::ElementsAre(0x01, 0x44, 0x00));
  Bench bench(problem);
  bench.Store();
  const AttentionArgs args = bench.target->AttentionArguments();
  bench.ExpectAllRight(args);
  KVFORGE_EXPECT_OK(bench.target->Decode(*bench.Decoder(), args, 1));
  const std::vector<float> lse = *bench.target->Lse();
  EXPECT_NEAR(lse[0], 0.6931472f, 1e-5);  // ln 2
  EXPECT_NEAR(lse[4], 0.0f, 1e-5);        // ln 1
}

// Masks of a batch may lie apart; what is between them says nothing.
TEST(CustomMaskBits, BeginWhereMaskIndptrSays) {
  CaseOptions options = Options({3, 2}, {21, 30});
  options.mask = Scattered;
  AttentionCase problem = Generated(options);
  const std::vector<uint8_t> packed = problem.custom_mask;
  const auto second = packed.begin() + problem.mask_indptr[1];
  problem.custom_mask.assign(3, 0xff);
  problem.custom_mask.insert(problem.custom_mask.end(), packed.begin(), second);
  problem.custom_mask.insert(problem.custom_mask.end(), 5, 0xff);
  problem.custom_mask.insert(problem.custom_mask.end(), second, packed.end());
  problem.mask_indptr = {3, problem.mask_indptr[1] + 8,
                         problem.mask_indptr[2] + 8};
  Bench bench(problem);
  bench.Store();
  bench.ExpectAllRight(bench.target->AttentionArguments());
}

struct SparseCase {
  int block;
  int page_size;
};

class Sparse : public ::testing::TestWithParam<SparseCase> {};

TEST_P(Sparse, OnlySelectedBlocksAreAttended) {
  CaseOptions options = Options({1, 1, 1, 1}, {210, 97, 13, 0});
  options.sparse_block = GetParam().block;
  options.page_size = GetParam().page_size;
  ExpectCaseRight(options);
  // Several queries, more rows than a tile, a window, a sink.
  options.format = "nvfp4_row";
  options.q_lens = {5, 16, 13, 2};
  options.num_q_heads = 14;
  options.window = 60;
  options.sinks = true;
  ExpectCaseRight(options, 3);
}

INSTANTIATE_TEST_SUITE_P(
    Blocks, Sparse,
    ::testing::Values(SparseCase{1, 16}, SparseCase{3, 1}, SparseCase{7, 48},
                      SparseCase{8, 16}, SparseCase{16, 16}, SparseCase{16, 64},
                      SparseCase{24, 16}, SparseCase{48, 64},
                      SparseCase{64, 16}, SparseCase{100, 48},
                      SparseCase{128, 1}),
    [](const auto& info) {
      return absl::StrCat("Block", info.param.block, "Page",
                          info.param.page_size);
    });

TEST(SparseLists, LongPromptsMaskWhatIsNotSelected) {
  CaseOptions options = Options({150, 65}, {190, 65});
  for (int block : {8, 32, 50}) {
    options.sparse_block = block;
    ExpectCaseRight(options, block % 4);
  }
}

TEST(SparseLists, NarrowACustomMask) {
  for (std::vector<int> q_lens : {std::vector<int>{4, 16}, {70, 3}}) {
    CaseOptions options = Options(q_lens, {133, 90});
    options.mask = Scattered;
    options.sparse_block = 24;
    options.alibi = true;
    ExpectCaseRight(options);
  }
}

// Also where a warp never gets a block: what it would fetch next is defined.
TEST(SparseLists, WithoutABlockTheRowIsEmpty) {
  CaseOptions options = Options({1, 2}, {100, 40});
  options.sparse_block = 16;
  // Nothing for kv head 0; for head 1 what does not exist, and one block.
  options.selected = [](int, int kv_head) {
    return kv_head == 0 ? std::vector<int>{-1, -1, -1, -1}
                        : std::vector<int>{1 << 27, -1, 1, INT_MIN};
  };
  Bench bench(Generated(options));
  bench.Store();
  const AttentionArgs args = bench.target->AttentionArguments();
  bench.ExpectAllRight(args);
  KVFORGE_EXPECT_OK(bench.target->Decode(*bench.Decoder(), args, 1));
  const std::vector<float> lse = *bench.target->Lse();
  EXPECT_EQ(lse[0], kMinusInfinity);
  EXPECT_TRUE(std::isfinite(lse[2]));
  options.selected = [](int, int) { return std::vector<int>(); };
  Bench empty(Generated(options));
  empty.Store();
  empty.ExpectAllRight(empty.target->AttentionArguments());
}

// Pages of which nothing is selected may be anywhere: an access would fault.
TEST(SparseLists, FreedPagesAreNotTouched) {
  for (int page_size : {1, 16, 48}) {
    CaseOptions options = Options({1, 3, 40}, {400, 300, 200});
    options.page_size = page_size;
    options.sparse_block = 16;
    options.selected = [](int b, int kv_head) {
      return std::vector<int>{7 + kv_head, -1, b};
    };
    AttentionCase problem = Generated(options);
    int freed = 0;
    for (int32_t& page : problem.page_table) {
      if (page != -1) continue;
      page = INT_MAX;
      ++freed;
    }
    EXPECT_GT(freed, 10);
    Bench bench(problem);
    bench.Store();
    bench.ExpectAllRight(bench.target->AttentionArguments());
  }
}

// Equal weights: the mean of the selected rows, 16 of them holding 2 and 16
// holding 9.
TEST(SparseLists, EqualWeightsGiveTheMeanOfTheSelection) {
  CaseOptions options = Options({1}, {160});
  options.format = "bf16";
  options.out_type = DType::kF32;
  options.q = Zero;
  options.v = [](int64_t token, int, int) { return token / 16 + 1.0f; };
  options.sparse_block = 16;
  options.selected = [](int, int) { return std::vector<int>{8, -1, 1}; };
  Bench bench(Generated(options));
  bench.Store();
  for (float expected : bench.problem.out) EXPECT_EQ(expected, 5.5f);
  for (float expected : bench.problem.lse) {
    EXPECT_FLOAT_EQ(expected, 3.4657359f);  // ln 32
  }
  bench.ExpectAllRight(bench.target->AttentionArguments());
}

TEST(SparseLists, SplitsDivideTheSelection) {
  CaseOptions options = Options({1, 2}, {600, 333});
  options.sparse_block = 24;
  Bench bench(Generated(options));
  bench.Store();
  for (int splits : {2, 5, 13, 40}) {
    bench.ExpectAllRight(bench.target->AttentionArguments(), splits);
  }
}

// What decode and extend refuse when a feature's argument is missing.
TEST(VisibilityArguments, AreRefusedByName) {
  CaseOptions options = Options({1}, {40});
  options.alibi = true;
  options.mask = Scattered;
  options.sparse_block = 16;
  Bench bench(Generated(options));
  bench.Store();
  const auto expect_refused =
      [&](const std::function<void(AttentionArgs&)>& change,
          const char* message) {
        AttentionArgs args = bench.target->AttentionArguments();
        change(args);
        for (const absl::Status& status :
             {bench.target->Extend(*bench.Kernel(KernelKind::kExtend), args),
              bench.target->Decode(*bench.Decoder(), args, 1)}) {
          EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
          EXPECT_THAT(std::string(status.message()), HasSubstr(message));
        }
      };
  expect_refused([](AttentionArgs& a) { a.alibi_slopes = nullptr; },
                 ": alibi_slopes is null; it must point to f32 slopes, one a "
                 "q head; pass memory of the engine's target");
  expect_refused([](AttentionArgs& a) { a.custom_mask = nullptr; },
                 ": custom_mask is null; it must point to mask bits, q_len * "
                 "kv_len a sequence; pass memory of the engine's target");
  expect_refused([](AttentionArgs& a) { a.mask_indptr = nullptr; },
                 ": mask_indptr is null; it must point to i32 byte offsets of "
                 "each sequence's mask; pass memory of the engine's target");
  expect_refused([](AttentionArgs& a) { a.selected = nullptr; },
                 ": selected is null; it must point to i32 block numbers, "
                 "selected_per_head a kv head; pass memory of the engine's "
                 "target");
  expect_refused([](AttentionArgs& a) { a.selected_per_head = -1; },
                 ": selected_per_head = -1 is negative");
  expect_refused([](AttentionArgs& a) { a.selected_per_head = 1 << 28; },
                 ": selected_per_head = 268435456 blocks of 16 tokens; up to "
                 "134217727 blocks of this length are supported; pass shorter "
                 "lists");
  KVFORGE_EXPECT_OK(bench.target->Extend(*bench.Kernel(KernelKind::kExtend),
                                         bench.target->AttentionArguments()));
}

}  // namespace
}  // namespace kvforge
