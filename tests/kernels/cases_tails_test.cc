// Faults of tails, padding and nothing at all. Numbers are those of
// docs/cases.md.
#include <cmath>
#include <limits>
#include <tuple>

#include "compiler/tile/memory_model.h"
#include "kernels/extend.h"
#include "kernels/merge.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

CaseOptions Small(std::vector<int> q_lens, std::vector<int> kv_lens) {
  CaseOptions options;
  options.name = "tails";
  options.head_dim = 64;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.page_size = 16;
  options.q_lens = std::move(q_lens);
  options.kv_lens = std::move(kv_lens);
  return options;
}

float Zero(int64_t, int, int) { return 0; }

// Caches are poisoned before the store: NaN codes and NaN scales in every slot
// that holds no token.
TEST(Case12, UnwrittenSlotsAreNan) {
  for (const KvFormat& format : kFormats) {
    if (!format.served) continue;
    CaseOptions options = Small({1, 1}, {1, 3});
    options.format = std::string(format.name);
    ExpectCaseRight(options);
  }
}

TEST(Case13, LastPageHasSixNanSlots) {
  CaseOptions options = Small({1}, {4090});
  options.num_q_heads = options.num_kv_heads = 1;
  ExpectCaseRight(options, 0, 1);
}

TEST(Case16, EmptySequenceBesideAnother) {
  Bench bench(Generated(Small({1, 1}, {0, 5})));
  bench.Store();
  const AttentionArgs args = bench.target->AttentionArguments();
  bench.ExpectAllRight(args);
  KVFORGE_EXPECT_OK(bench.target->Decode(*bench.Decoder(), args, 1));
  const std::vector<float> lse = *bench.target->Lse();
  const std::vector<uint8_t> out = *bench.target->Out();
  for (int h = 0; h < 4; ++h) EXPECT_EQ(lse[h], kMinusInfinity);
  for (int i = 0; i < 4 * 64 * 2; ++i) EXPECT_EQ(out[i], 0) << i;
  EXPECT_TRUE(std::isfinite(lse[4]));
}

TEST(Case16, NothingIsLaunchedForNothing) {
  // Null pointers would fail if anything were looked at.
  const Bench bench(Generated(Small({1}, {5})));
  ExtendParams extend;
  extend.num_q_heads = 4;
  extend.args.num_kv_heads = 2;
  extend.args.batch = 3;
  KVFORGE_EXPECT_OK(
      RunExtend(*bench.Kernel(KernelKind::kExtend), extend, nullptr));
  extend.args.batch = 0;
  extend.args.total_q = 3;
  KVFORGE_EXPECT_OK(
      RunExtend(*bench.Kernel(KernelKind::kExtend), extend, nullptr));
  DecodeParams decode;
  decode.args = extend.args;
  decode.num_q_heads = 4;
  KVFORGE_EXPECT_OK(RunDecode(*bench.Decoder(), decode, nullptr));
}

TEST(Case17, MergeOfStatesThatAreAllEmpty) {
  const auto kernel = Prepared("merge/d64/f32");
  // Row 0: both states empty, their out NaN. Row 1: the second is.
  std::vector<float> partial(2 * 2 * 64, std::nanf(""));
  for (int d = 0; d < 64; ++d) partial[64 + d] = 3;
  const TargetBuffer partial_out = Uploaded(partial);
  const TargetBuffer partial_lse =
      Uploaded<float>({kMinusInfinity, 0.5f, kMinusInfinity, kMinusInfinity});
  const TargetBuffer out_buffer = Allocated(2 * 64 * 4);
  const TargetBuffer lse_buffer = Uploaded<float>({7, 7});
  MergeArgs args = {};
  args.partial_out = partial_out.as<float>();
  args.partial_lse = partial_lse.as<float>();
  args.out = out_buffer.as<unsigned char>();
  args.out_row_stride = args.out_head_stride = 256;
  args.lse = lse_buffer.as<float>();
  args.lse_row_stride = 1;
  args.splits = 2;
  args.rows = 2;
  args.heads = 1;
  KVFORGE_EXPECT_OK(RunMerge(*kernel, args, nullptr));
  RecordExecuted(KernelKind::kMerge, kFormats[0], kFormats[0]);
  KVFORGE_EXPECT_OK(SynchronizeTarget(TestEngine(), nullptr));
  const std::vector<float> out = Downloaded<float>(out_buffer);
  const std::vector<float> lse = Downloaded<float>(lse_buffer);
  EXPECT_EQ(lse[0], kMinusInfinity);
  EXPECT_FLOAT_EQ(lse[1], 0.5f);
  for (int d = 0; d < 64; ++d) {
    EXPECT_EQ(out[d], 0);
    EXPECT_FLOAT_EQ(out[64 + d], 3);
  }
}

TEST(Case19, UniformWeightsWithoutCausalGiveTheMean) {
  CaseOptions options = Small({1}, {16});
  options.causal = false;
  options.q = Zero;
  options.v = [](int64_t token, int, int) { return token + 1.0f; };
  options.format = "bf16";
  options.out_type = DType::kF32;
  Bench bench(Generated(options));
  bench.Store();
  const AttentionArgs args = bench.target->AttentionArguments();
  bench.ExpectAllRight(args);
  for (float expected : bench.problem.out) EXPECT_EQ(expected, 8.5f);
  for (float expected : bench.problem.lse) {
    EXPECT_FLOAT_EQ(expected, 2.7725887f);  // ln 16
  }
}

TEST(Case20, SplitsThatEndInsideATile) {
  // Seven splits of 400 keys: chunks of 58 keys or of whole groups, none of 64.
  for (int splits : {4, 7, 13, 30}) {
    Bench bench(Generated(Small({1, 2}, {400, 37})));
    bench.Store();
    bench.ExpectAllRight(bench.target->AttentionArguments(), splits);
  }
}

// Blocks that end inside units and begin others, of which some are empty.
TEST(DecodeGrid, OfAnyShapeTakesEveryStepOfUnevenSequences) {
  const AttentionCase problem =
      Generated(Small({1, 2, 1, 1, 3}, {700, 3, 0, 1500, 260}));
  for (int heads : {1, 2}) {
    Bench bench(problem);
    bench.Store();
    const auto kernel = bench.Decoder();
    for (int blocks : {1, 2, 3, 5, 7, 12, 45, 100}) {
      SCOPED_TRACE(absl::StrCat(blocks, " blocks of ", heads, " kv heads"));
      DecodeGrid grid;
      grid.blocks = blocks;
      grid.heads_per_block = heads;
      KVFORGE_EXPECT_OK(bench.target->Decode(
          *kernel, bench.target->AttentionArguments(), grid));
      bench.ExpectRight("decode");
    }
  }
}

// Kv heads that a block attends to together share copies of their row scales,
// with slots or heads inside; alone, and in parts, each warp has its own.
// A format and a head_dim: rows of one line, of several, and such that tensor
// copies do not take.
using FormatAndDim = std::tuple<const char*, int>;
class DecodeGridFormats : public ::testing::TestWithParam<FormatAndDim> {};

TEST_P(DecodeGridFormats, OfManyHeadsReadTheirScalesTogether) {
  CaseOptions options = Small({1, 1, 2, 1}, {100, 33, 7, 16});
  options.format = std::get<0>(GetParam());
  options.head_dim = std::get<1>(GetParam());
  options.num_kv_heads = 8;
  options.num_q_heads = 16;
  options.page_size = 64;
  const AttentionCase problem = Generated(options);
  for (int layout = 0; layout < 4; ++layout) {
    Bench bench(problem, layout);
    bench.Store();
    const auto kernel = bench.Decoder();
    const int most = DecodeHeadsPerBlock(kernel->spec(), kernel->tile());
    for (int heads = 1; heads <= most; heads *= 2) {
      for (int blocks : {1, 6}) {
        SCOPED_TRACE(absl::StrCat(bench.layout.name, ", ", blocks,
                                  " blocks of ", heads, " kv heads"));
        DecodeGrid grid;
        grid.blocks = blocks;
        grid.heads_per_block = heads;
        KVFORGE_EXPECT_OK(bench.target->Decode(
            *kernel, bench.target->AttentionArguments(), grid));
        bench.ExpectRight("decode");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DecodeGridFormats,
                         ::testing::Values(FormatAndDim{"e4m3_row", 128},
                                           FormatAndDim{"int4_row", 128},
                                           FormatAndDim{"nvfp4_row", 128},
                                           FormatAndDim{"nvfp4_row", 64},
                                           FormatAndDim{"int4_row", 64},
                                           FormatAndDim{"bf16", 128}),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), "_",
                                               std::get<1>(info.param));
                         });

TEST(Case24, PaddedRowOfABatch) {
  Bench bench(Generated(Small({1, 1, 1, 1}, {0, 40, 3, 17})));
  bench.Store();
  bench.ExpectAllRight(bench.target->AttentionArguments());
  for (int i = 0; i < 4 * 64; ++i) EXPECT_EQ(bench.problem.out[i], 0);
}

// A captured graph replays with fewer rows than it was made for.
TEST(Padding, RowsPastTheLastSequenceStayAsTheyAre) {
  AttentionCase problem = Generated(Small({1, 1, 1}, {9, 20, 5}));
  // The third sequence leaves: its row is padding now.
  problem.q_indptr[3] = 2;
  Bench bench(problem);
  bench.Store();
  const AttentionArgs args = bench.target->AttentionArguments();
  KVFORGE_EXPECT_OK(
      bench.target->Extend(*bench.Kernel(KernelKind::kExtend), args));
  bench.ExpectRight("extend");
  KVFORGE_EXPECT_OK(bench.target->Decode(*bench.Decoder(), args, 1));
  bench.ExpectRight("decode");
}

TEST(Case41, WindowKeepsTheLastKeys) {
  CaseOptions options = Small({1}, {6});
  options.window = 4;
  options.q = Zero;
  options.format = "bf16";
  // Keys 2 to 5 are visible: the mean of 4, 8, 16, 32.
  options.v = [](int64_t token, int, int) { return std::ldexp(1.0f, token); };
  const AttentionCase problem = Generated(options);
  EXPECT_EQ(problem.out[0], 15);
  ExpectCaseRight(options);
  options = Small({1, 1, 3}, {257, 600, 257});
  options.window = 511;
  ExpectCaseRight(options, 0, 1);
}

}  // namespace
}  // namespace kvforge
