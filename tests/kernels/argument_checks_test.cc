// What the public calls refuse, in their own words: whole sentences.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "kernels/argument_checks.h"
#include "kernels/extend.h"
#include "kernels/merge.h"
#include "kernels/store.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

TEST(RowsOverlap, ExactForEveryArrangement) {
  // NHD and HND, dense.
  EXPECT_FALSE(RowsOverlap({64, {100, 16, 3}, {3072, 192, 64}}));
  EXPECT_FALSE(RowsOverlap({64, {100, 16, 3}, {3072, 64, 1024}}));
  // One byte too little between heads, slots, pages.
  EXPECT_TRUE(RowsOverlap({64, {100, 16, 3}, {3072, 192, 63}}));
  EXPECT_TRUE(RowsOverlap({64, {100, 16, 3}, {3072, 191, 64}}));
  EXPECT_TRUE(RowsOverlap({64, {100, 16, 3}, {3071, 192, 64}}));
  // A stride of 0 repeats rows; of a dimension of one entry it means nothing.
  EXPECT_TRUE(RowsOverlap({64, {100, 16, 3}, {3072, 64, 0}}));
  EXPECT_FALSE(RowsOverlap({64, {100, 16, 1}, {1024, 64, 0}}));
  // Rows woven into each other's gaps: 0, 128, 192, 320, 384 ... do not meet.
  EXPECT_FALSE(RowsOverlap({64, {1, 2, 2}, {0, 192, 128}}));
  // Twice these strides, or the sum of them, passes 2^63.
  constexpr int64_t kFar = int64_t{1} << 62;
  EXPECT_TRUE(RowsOverlap({64, {3, 3, 3}, {kFar, kFar, 64}}));
  EXPECT_FALSE(RowsOverlap({64, {2, 3, 2}, {kFar + 64, kFar, 128}}));
  EXPECT_TRUE(RowsOverlap({65, {1, 2, 2}, {0, 192, 128}}));
  // Backwards.
  EXPECT_FALSE(RowsOverlap({64, {4, 16, 2}, {2048, -64, 1024}}));
  EXPECT_TRUE(RowsOverlap({64, {4, 16, 2}, {2048, -64, 1000}}));
  // Pages whose distance passes 2^31.
  EXPECT_FALSE(
      RowsOverlap({64, {kUnknownPages, 16, 2}, {7768ll * 276480, 128, 64}}));
}

// A row stride of two heads where there are three: refused at once, however
// many rows.
TEST(RowsOverlap, WalksTheSmallerDimensions) {
  EXPECT_TRUE(RowsOverlap({256, {1, int64_t{1} << 40, 3}, {0, 512, 256}}));
  EXPECT_FALSE(
      RowsOverlap({256, {2, int64_t{1} << 40, 2}, {-256, 1024, 256 * 2}}));
}

TEST(RowsOverlap, LooksAtNoRowsOfNestedDimensions) {
  // Row by row, 2^20 slots of 2^12 heads would take minutes.
  const int64_t slots = 1 << 20, heads = 1 << 12, pages = kUnknownPages;
  EXPECT_FALSE(RowsOverlap(
      {64, {pages, slots, heads}, {64 * heads * slots, 64 * heads, 64}}));
  EXPECT_FALSE(RowsOverlap(
      {64, {pages, slots, heads}, {64 * heads * slots, 64, 64 * slots}}));
}

// Every row beside every other one.
bool SomeRowsMeet(const RowGrid& grid) {
  std::vector<int64_t> starts;
  for (int64_t page = 0; page < grid.extents[0]; ++page) {
    for (int64_t slot = 0; slot < grid.extents[1]; ++slot) {
      for (int64_t head = 0; head < grid.extents[2]; ++head) {
        starts.push_back(page * grid.strides[0] + slot * grid.strides[1] +
                         head * grid.strides[2]);
      }
    }
  }
  std::sort(starts.begin(), starts.end());
  for (size_t i = 1; i < starts.size(); ++i) {
    if (starts[i] - starts[i - 1] < grid.row_bytes) return true;
  }
  return false;
}

TEST(RowsOverlap, AgreesWithEveryPairOfRows) {
  std::mt19937 random(7);
  const auto either_sign_below = [&](int bound) {
    return static_cast<int>(random()) % bound;
  };
  int overlaps = 0;
  constexpr int kGrids = 20'000;
  for (int i = 0; i < kGrids; ++i) {
    RowGrid grid = {4, {}, {}};
    for (int d = 0; d < 3; ++d) {
      grid.extents[d] = 1 + std::abs(either_sign_below(4));
      grid.strides[d] = either_sign_below(80);
    }
    const bool expected = SomeRowsMeet(grid);
    overlaps += expected;
    ASSERT_EQ(RowsOverlap(grid), expected)
        << grid.extents[0] << "," << grid.extents[1] << "," << grid.extents[2]
        << " rows at strides " << grid.strides[0] << "," << grid.strides[1]
        << "," << grid.strides[2];
  }
  // Both answers are common among these.
  EXPECT_GT(overlaps, kGrids / 10);
  EXPECT_LT(overlaps, kGrids * 9 / 10);
}

TEST(WidestAccess, FollowsBaseStridesAndRow) {
  alignas(64) static char memory[64];
  const auto width = [](const void* base, absl::Span<const int64_t> strides,
                        int64_t row_bytes) {
    const absl::StatusOr<int> bytes =
        WidestAccess("store", "x", base, strides, row_bytes, {16, 8, 4});
    return bytes.ok() ? *bytes : 0;
  };
  EXPECT_EQ(width(memory, {256, 128}, 128), 16);
  EXPECT_EQ(width(memory + 8, {256, 128}, 128), 8);
  EXPECT_EQ(width(memory, {256, 136}, 128), 8);
  EXPECT_EQ(width(memory, {256, 128}, 40), 8);  // nvfp4_row at head_dim 80
  EXPECT_EQ(width(memory, {132, 132}, 128), 4);
  EXPECT_EQ(width(memory + 2, {256, 128}, 128), 0);
  EXPECT_EQ(
      WidestAccess("store", "k.codes", memory + 2, {256, 128}, 128, {16, 8, 4})
          .status()
          .message(),
      "store: base and strides of k.codes are multiples of 2 bytes only, "
      "its rows have 128 bytes; accesses are 16, 8, 4 bytes wide; align "
      "the base and every stride to 4 bytes or more");
}

CaseOptions SmallCase(const std::string& format) {
  CaseOptions options;
  options.name = options.format = format;
  options.head_dim = 64;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.q_lens = {1, 2};
  options.kv_lens = {5, 20};
  return options;
}

class StoreRefuses : public ::testing::Test {
 protected:
  StoreRefuses()
      : bench_(Generated(SmallCase("e4m3_row"))),
        kernel_(bench_.Kernel(KernelKind::kStore)),
        args_(bench_.target->StoreArguments()) {}

  std::string Message() const {
    const absl::Status status = RunStore(*kernel_, args_, nullptr);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  Bench bench_;
  std::shared_ptr<const PreparedKernel> kernel_;
  StoreArgs args_;
};

TEST_F(StoreRefuses, NullPointers) {
  args_.slots = nullptr;
  EXPECT_EQ(Message(),
            "store: slots is null; it must point to i64 slots, one a token; "
            "pass memory of the engine's target");
  args_ = bench_.target->StoreArguments();
  args_.v.row_scale.base = nullptr;
  EXPECT_EQ(Message(),
            "store: v.row_scale.base is null; it must point to the f32 row "
            "scales of page 0; pass memory of the engine's target");
  args_ = bench_.target->StoreArguments();
  args_.k_src.base = nullptr;
  EXPECT_EQ(Message(),
            "store: k_src.base is null; it must point to the first source row; "
            "pass memory of the engine's target");
}

TEST_F(StoreRefuses, Misalignment) {
  args_.k_src.base += 1;
  EXPECT_EQ(Message(),
            "store: base and strides of k_src are multiples of 1 bytes only, "
            "its rows have 128 bytes; accesses are 16, 8, 4, 2 bytes wide; "
            "align the base and every stride to 2 bytes or more");
  args_ = bench_.target->StoreArguments();
  args_.k.row_scale.page_stride += 2;
  EXPECT_EQ(Message(),
            "store: base and strides of k.row_scale are multiples of 2 bytes "
            "only, its rows have 4 bytes; accesses are 4 bytes wide; align the "
            "base and every stride to 4 bytes or more");
}

TEST_F(StoreRefuses, OverlappingStrides) {
  args_.k.codes.slot_stride = 64;  // two heads of 64 bytes need 128
  EXPECT_EQ(Message(),
            "store: rows of k.codes overlap: 64 bytes a row with page, slot, "
            "head strides 2048, 64, 64; every row must have bytes of its own; "
            "make the strides those of the buffer that was allocated");
  args_ = bench_.target->StoreArguments();
  args_.v.codes = args_.k.codes;
  EXPECT_EQ(Message(),
            "store: k.codes.base and v.codes.base are the same address; codes "
            "and scales of K and V must have bytes of their own; pass the V "
            "half of an interleaved cache as V's, and scales behind their "
            "row's codes");
  args_ = bench_.target->StoreArguments();
  args_.v.row_scale = args_.k.row_scale;
  EXPECT_THAT(Message(),
              HasSubstr("k.row_scale.base and v.row_scale.base are the same "
                        "address"));
}

TEST_F(StoreRefuses, NegativeCountsAndHugeStrides) {
  args_.num_tokens = -1;
  EXPECT_EQ(Message(),
            "store: num_tokens = -1 is negative; 0 or more is supported; pass "
            "0 to do nothing");
  args_ = bench_.target->StoreArguments();
  args_.k.codes.page_stride = int64_t{1} << 47;
  EXPECT_EQ(Message(),
            "store: a stride of k.codes is 140737488355328 bytes; strides up "
            "to 2^46 are supported; pass strides in bytes of one page, slot, "
            "token or head");
}

TEST_F(StoreRefuses, TheSmallestStride) {
  args_.k_src.token_stride = std::numeric_limits<long long>::min();
  EXPECT_EQ(Message(),
            "store: a stride of k_src is -9223372036854775808 bytes; strides "
            "up to 2^46 are supported; pass strides in bytes of one page, "
            "slot, token or head");
}

TEST_F(StoreRefuses, OverlapInAPageCutShort) {
  args_.num_slots = 8;  // of one page of 16
  args_.k.codes.slot_stride = 64;
  EXPECT_THAT(Message(), ::testing::HasSubstr("rows of k.codes overlap"));
}

TEST_F(StoreRefuses, AnotherKernel) {
  kernel_ = bench_.Kernel(KernelKind::kExtend);
  EXPECT_EQ(Message(),
            "store: the kernel is extend/e4m3_row/d64/g2/page16/bf16; only "
            "store kernels store; prepare a store spec");
}

TEST(Store, GivenScaleMustBePositive) {
  const Bench bench(Generated(SmallCase("e4m3_tensor")));
  StoreArgs args = bench.target->StoreArguments();
  args.v.scale = 0;
  EXPECT_EQ(
      RunStore(*bench.Kernel(KernelKind::kStore), args, nullptr).message(),
      "store: v.scale = 0 with format e4m3_tensor; the scale of this format is "
      "given and must be positive and finite; pass the checkpoint's v_scale, "
      "or 1");
}

TEST(Store, HeadScalesMustBeInMemory) {
  const Bench bench(Generated(SmallCase("e4m3_head")));
  StoreArgs args = bench.target->StoreArguments();
  args.k.scale_ptr = nullptr;
  EXPECT_EQ(
      RunStore(*bench.Kernel(KernelKind::kStore), args, nullptr).message(),
      "store: k.scale_ptr is null; it must point to the 2 f32 scales of the kv "
      "heads; pass memory of the engine's target");
}

TEST(Store, ChannelScalesMustBeInMemory) {
  const Bench bench(Generated(SmallCase("e4m3_channel")));
  StoreArgs args = bench.target->StoreArguments();
  args.v.scale_ptr = nullptr;
  EXPECT_EQ(
      RunStore(*bench.Kernel(KernelKind::kStore), args, nullptr).message(),
      "store: v.scale_ptr is null; it must point to the f32 scales of the 2 kv "
      "heads' 64 channels; pass memory of the engine's target");
}

TEST(Store, NothingToDoNeedsNoPointers) {
  const Bench bench(Generated(SmallCase("e4m3_row")));
  StoreArgs args = {};
  args.num_kv_heads = 2;
  KVFORGE_EXPECT_OK(RunStore(*bench.Kernel(KernelKind::kStore), args, nullptr));
}

class AttentionRefuses : public ::testing::Test {
 protected:
  AttentionRefuses()
      : bench_(Generated(SmallCase("nvfp4_row"))),
        kernel_(bench_.Kernel(KernelKind::kExtend)) {
    Reset();
  }

  void Reset() { params_ = {bench_.target->AttentionArguments(), 4}; }
  std::string Message() const {
    const absl::Status status = RunExtend(*kernel_, params_, nullptr);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  Bench bench_;
  std::shared_ptr<const PreparedKernel> kernel_;
  ExtendParams params_;
};

TEST_F(AttentionRefuses, HeadCounts) {
  params_.num_q_heads = 5;
  EXPECT_EQ(Message(),
            "extend: num_q_heads = 5 is not a multiple of num_kv_heads = 2; "
            "every kv head must serve the same number of q heads; check the "
            "model's head counts");
  params_.num_q_heads = 8;
  EXPECT_EQ(Message(),
            "extend: num_q_heads / num_kv_heads = 4 with a kernel of group 2; "
            "a kernel serves the group it was prepared for; prepare extend "
            "with g4");
  params_.args.num_kv_heads = 0;
  EXPECT_EQ(Message(),
            "extend: num_q_heads = 8 is not a multiple of num_kv_heads = 0; "
            "every kv head must serve the same number of q heads; check the "
            "model's head counts");
}

TEST_F(AttentionRefuses, NegativeLengths) {
  params_.args.batch = -3;
  EXPECT_EQ(Message(),
            "extend: batch = -3 is negative; 0 or more is supported; pass 0 to "
            "do nothing");
  Reset();
  params_.args.page_table_stride = -1;
  EXPECT_EQ(Message(),
            "extend: page_table_stride = -1 is out of range; 0 to "
            "17592186044416 elements "
            "are supported; pass the row length of page_table");
}

TEST_F(AttentionRefuses, Pointers) {
  params_.args.kv_lens = nullptr;
  EXPECT_EQ(Message(),
            "extend: kv_lens is null; it must point to i32 lengths, one a "
            "sequence; pass memory of the engine's target");
  Reset();
  params_.args.k.block_scale.base = nullptr;
  EXPECT_EQ(Message(),
            "extend: k.block_scale.base is null; it must point to the block "
            "scales of page 0; pass memory of the engine's target");
  Reset();
  params_.args.out += 2;
  EXPECT_EQ(Message(),
            "extend: out is aligned to 2 bytes; it must be a multiple of 16 "
            "for the rows to write; move the buffer or copy it");
  Reset();
  params_.args.q_token_stride += 8;
  EXPECT_EQ(Message(),
            "extend: base and strides of q are multiples of 8 bytes only, its "
            "rows have 128 bytes; accesses are 16 bytes wide; align the base "
            "and every stride to 16 bytes or more");
}

TEST_F(AttentionRefuses, OutRowsThatOverlap) {
  params_.args.out_token_stride = 128;  // 4 heads of 128 bytes need 512
  EXPECT_EQ(Message(),
            "extend: rows of out overlap: 128 bytes a row with page, token, "
            "head strides 0, 128, 128; every row must have bytes of its own; "
            "make the strides those of the buffer that was allocated");
}

TEST_F(AttentionRefuses, LseStrideThatOverflowsInBytes) {
  params_.args.lse_token_stride = (1LL << 62) + 4;  // 16 bytes in 64 bits
  EXPECT_EQ(Message(),
            "extend: a stride of lse is 4611686018427387908 bytes; strides up "
            "to 2^46 are supported; pass strides in bytes of one page, slot, "
            "token or head");
}

TEST_F(AttentionRefuses, RowsBeyond32Bits) {
  params_.args.total_q = (1 << 29) + 1;
  EXPECT_EQ(Message(),
            "extend: total_q = 536870913 with a group of 2 is 1073741826 rows "
            "of one kv head; up to 1073741824 are supported; split the batch "
            "over several calls");
}

TEST_F(AttentionRefuses, ScaleThatIsNotFinite) {
  params_.args.sm_scale = std::nanf("");
  EXPECT_EQ(Message(),
            "extend: sm_scale = nan is not finite; any finite scale is "
            "supported; pass 1/sqrt(head_dim) or the model's own");
}

TEST(Decode, RefusesGridAndWorkspace) {
  const Bench bench(Generated(SmallCase("e4m3_row")));
  const std::shared_ptr<const PreparedKernel> kernel = bench.Decoder();
  DecodeParams params;
  params.args = bench.target->AttentionArguments();
  params.num_q_heads = 4;
  params.grid.blocks = 0;
  EXPECT_EQ(RunDecode(*kernel, params, nullptr).message(),
            "decode: grid.blocks = 0 is out of range; 1 to 65536 are "
            "supported; take the grid that the library chooses");
  params.grid.blocks = 3;
  for (const int heads : {0, 3, 4, 16}) {  // of 2 kv heads
    params.grid.heads_per_block = heads;
    EXPECT_THAT(
        std::string(RunDecode(*kernel, params, nullptr).message()),
        ::testing::HasSubstr(absl::StrCat(
            "decode: grid.heads_per_block = ", heads,
            "; a power of two that divides num_kv_heads = 2 is supported")));
  }
  params.grid.heads_per_block = 2;
  EXPECT_EQ(RunDecode(*kernel, params, nullptr).message(),
            "decode: workspace is null; it must point to counters and scratch "
            "of parts; pass memory of the engine's target");
  alignas(16) static char workspace[64];
  params.workspace = workspace;
  params.workspace_bytes = 64;
  // Counters: 3 * 4 bytes, rounded to 16. Slots: two of 2 heads * 8 rows *
  // (64 + 1) * 4 bytes for each block.
  EXPECT_EQ(kernel->tile().block_m, 8);
  EXPECT_EQ(DecodeWorkspaceBytes(*kernel, params.grid), 16 + 3 * 2 * 4160);
  EXPECT_EQ(RunDecode(*kernel, params, nullptr).message(),
            "decode: the workspace has 64 bytes; 3 blocks of 2 kv heads need "
            "24976; allocate as many bytes as the library computes for this "
            "grid, or use fewer blocks");
  EXPECT_EQ(DecodeWorkspaceBytes(*kernel, {}), 0);
  EXPECT_EQ(
      RunDecode(*bench.Kernel(KernelKind::kExtend), params, nullptr).message(),
      "decode: the kernel is extend/e4m3_row/d64/g2/page16/bf16; "
      "only decode kernels decode; prepare a decode spec");
}

TEST(Merge, RefusesNoStates) {
  const std::shared_ptr<const PreparedKernel> kernel =
      Prepared("merge/d64/bf16");
  MergeArgs args = {};
  args.rows = 1;
  args.heads = 1;
  EXPECT_EQ(RunMerge(*kernel, args, nullptr).message(),
            "merge: splits = 0 is out of range; 1 or more states can be "
            "merged; pass the number of states in partial_out");
}

TEST(CheckGrid, RefusesWhatOneLaunchCannotHave) {
  KVFORGE_EXPECT_OK(CheckGrid("store", 2147483647));
  EXPECT_EQ(CheckGrid("store", 2147483648).message(),
            "store: 2147483648 blocks are needed; a launch can have "
            "2147483647; split the batch over several calls");
}

}  // namespace
}  // namespace kvforge
