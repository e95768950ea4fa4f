// Faults of addressing that reached users of such libraries: the smallest input
// of each. Numbers are those of CASES.md.
#include <cstring>

#include "kernels/store.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

CaseOptions Small(const std::string& format = "e4m3_row", int head_dim = 64) {
  CaseOptions options;
  options.name = format;
  options.format = format;
  options.head_dim = head_dim;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.page_size = 16;
  options.q_lens = {1, 2};
  options.kv_lens = {20, 35};
  return options;
}

// Copies rows to where a view with other strides has them.
void Scatter(const unsigned char* from, int64_t from_stride, unsigned char* to,
             int64_t to_stride, int64_t row_bytes, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(to + i * to_stride, from + i * from_stride, row_bytes);
  }
}

TargetBuffer Buffer(size_t bytes, size_t alignment = 16) {
  absl::StatusOr<TargetBuffer> buffer =
      TargetBuffer::Allocate(HostEngine(), bytes, alignment);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  return *std::move(buffer);
}

TEST(Case01, SourcesWithPitchesOfTheirOwn) {
  CaseOptions options = Small("e4m3_row", 128);
  options.num_q_heads = options.num_kv_heads = 3;
  options.q_lens = {1};
  options.kv_lens = {8};
  Bench bench(Generated(options));
  const auto kernel = bench.Kernel(KernelKind::kStore);
  // Elements of 2 bytes: 1152 a row of fused q, k and v; 384 a dense one.
  TargetBuffer fused = Buffer(8 * 1152 * 2);
  for (bool key : {true, false}) {
    Bench fresh(bench.problem);
    StoreArgs args = fresh.target->StoreArguments();
    SourceRows& view = key ? args.k_src : args.v_src;
    ASSERT_EQ(view.token_stride, 384 * 2);
    unsigned char* middle = fused.as<unsigned char>() + 384 * 2;
    Scatter(view.base, 384 * 2, middle, 1152 * 2, 384 * 2, 8);
    view.base = middle;
    view.token_stride = 1152 * 2;
    KVFORGE_EXPECT_OK(fresh.target->Store(*kernel, args));
    KVFORGE_EXPECT_OK(fresh.target->CheckStored());
  }
}

TEST(Case02, KeysAndValuesUnboundFromOneBuffer) {
  CaseOptions options = Small();
  options.num_q_heads = options.num_kv_heads = 1;
  options.q_lens = {1};
  options.kv_lens = {19};
  ExpectCaseRight(options, /*first_layout=*/1, /*layouts=*/1);
}

TEST(Case03, PageStridePast32Bits) {
  for (int64_t stride : {int64_t{7768} * 276480, (int64_t{1} << 32) + 4096}) {
    Bench bench(Generated(Small()));
    StoreArgs store = bench.target->StoreArguments();
    AttentionArgs attention = bench.target->AttentionArguments();
    const int64_t page_bytes = store.k.codes.page_stride;
    TargetBuffer k = Buffer(stride * bench.problem.num_pages);
    TargetBuffer v = Buffer(stride * bench.problem.num_pages);
    store.k.codes.base = k.as<unsigned char>();
    store.v.codes.base = v.as<unsigned char>();
    store.k.codes.page_stride = store.v.codes.page_stride = stride;
    KVFORGE_EXPECT_OK(
        bench.target->Store(*bench.Kernel(KernelKind::kStore), store));
    attention.k = store.k;
    attention.v = store.v;
    bench.ExpectAllRight(attention);
    // The codes are those of a dense cache.
    unsigned char* dense = bench.target->AttentionArguments().k.codes.base;
    Scatter(k.as<unsigned char>(), stride, dense, page_bytes, page_bytes,
            bench.problem.num_pages);
    Scatter(v.as<unsigned char>(), stride,
            bench.target->AttentionArguments().v.codes.base, page_bytes,
            page_bytes, bench.problem.num_pages);
    // What was never written is zero in the sparse buffers.
    const int64_t slots = bench.target->cache().num_slots();
    std::vector<bool> used(slots, false);
    for (int64_t slot : bench.problem.slot_mapping) used[slot] = true;
    for (const CacheView& view : {bench.target->AttentionArguments().k,
                                  bench.target->AttentionArguments().v}) {
      for (int64_t slot = 0; slot < slots; ++slot) {
        if (used[slot]) continue;
        std::memset(view.codes.base + slot / 16 * page_bytes + slot % 16 * 128,
                    kPoison, 128);
      }
    }
    KVFORGE_EXPECT_OK(bench.target->CheckStored());
  }
}

TEST(Case04, RowStridesPast32Bits) {
  Bench bench(Generated(Small()));
  bench.Store();
  const int64_t stride = int64_t{3} << 30;
  const int64_t rows = bench.problem.total_q();
  AttentionArgs args = bench.target->AttentionArguments();
  TargetBuffer q = Buffer(stride * rows);
  Scatter(args.q, args.q_token_stride, q.as<unsigned char>(), stride,
          args.q_token_stride, rows);
  args.q = q.as<const unsigned char>();
  args.q_token_stride = stride;
  bench.ExpectAllRight(args);

  Bench fresh(bench.problem);
  StoreArgs store = fresh.target->StoreArguments();
  const int64_t tokens = bench.problem.tokens();
  TargetBuffer source = Buffer(stride * tokens);
  Scatter(store.k_src.base, store.k_src.token_stride,
          source.as<unsigned char>(), stride, store.k_src.token_stride, tokens);
  store.k_src.base = source.as<const unsigned char>();
  store.k_src.token_stride = stride;
  KVFORGE_EXPECT_OK(
      fresh.target->Store(*fresh.Kernel(KernelKind::kStore), store));
  KVFORGE_EXPECT_OK(fresh.target->CheckStored());
}

TEST(Case05, ScaleSidecarWithPaddedPages) {
  ExpectCaseRight(Small("e4m3_row"), /*first_layout=*/2, /*layouts=*/1);
  ExpectCaseRight(Small("nvfp4_row"), /*first_layout=*/2, /*layouts=*/1);
}

TEST(Case06, RowScalesInlineBehindTheCodesOfTwoLayers) {
  // A row of 64 codes and its scale; two layers of K and V in one buffer.
  constexpr int64_t kRow = 68;
  const Bench first(Generated(Small()));
  CaseOptions other = Small();
  other.seed = 2;
  const Bench second(Generated(other));
  const int64_t pages =
      std::max(first.problem.num_pages, second.problem.num_pages);
  const int64_t plane = 16 * 2 * kRow;
  TargetBuffer pool = Buffer(pages * plane * 4);
  KVFORGE_EXPECT_OK(pool.Fill(kPoison));
  const auto place = [&](CacheView& view, int index) {
    view.codes.base = pool.as<unsigned char>() + index * plane;
    view.codes.page_stride = 4 * plane;
    view.codes.slot_stride = 2 * kRow;
    view.codes.head_stride = kRow;
    view.row_scale = view.codes;
    view.row_scale.base += 64;
  };
  const Bench* layers[] = {&first, &second};
  for (int i = 0; i < 2; ++i) {
    StoreArgs args = layers[i]->target->StoreArguments();
    place(args.k, 2 * i);
    place(args.v, 2 * i + 1);
    KVFORGE_EXPECT_OK(
        layers[i]->target->Store(*layers[i]->Kernel(KernelKind::kStore), args));
  }
  for (int i = 0; i < 2; ++i) {
    Bench bench(layers[i]->problem);
    AttentionArgs args = bench.target->AttentionArguments();
    place(args.k, 2 * i);
    place(args.v, 2 * i + 1);
    bench.ExpectAllRight(args);
  }
}

TEST(Case07, HndWithAsManyHeadsAsSlots) {
  for (int heads : {4, 16}) {
    CaseOptions options = Small();
    options.num_q_heads = options.num_kv_heads = heads;
    options.q_lens = {1};
    options.kv_lens = {20};
    ExpectCaseRight(options, /*first_layout=*/5, /*layouts=*/1);
    ExpectCaseRight(options, /*first_layout=*/0, /*layouts=*/1);
  }
}

TEST(Case09, Nvfp4HeadDimIsThatOfQ) {
  ExpectCaseRight(Small("nvfp4_row", 128), 0, 1);
}

TEST(Case10, SlotPastThePoolIsSkipped) {
  AttentionCase problem = Generated(Small());
  Bench bench(problem);
  StoreArgs args = bench.target->StoreArguments();
  // The cache ends at a guard page, and all its bytes have to stay poison.
  std::vector<int64_t> slots(problem.tokens(), args.num_slots);
  slots[0] = problem.slot_mapping[0];
  TargetBuffer buffer = Buffer(slots.size() * 8, 8);
  KVFORGE_EXPECT_OK(buffer.CopyFromHost(slots.data(), slots.size() * 8));
  args.slots = buffer.as<long long>();
  KVFORGE_EXPECT_OK(
      bench.target->Store(*bench.Kernel(KernelKind::kStore), args));
  std::vector<int64_t> stored(problem.tokens(), -1);
  stored[0] = slots[0];
  KVFORGE_EXPECT_OK(bench.target->cache().CheckStored(bench.problem.k,
                                                      bench.problem.v, stored));
}

TEST(Case14And15, NegativeSlotsTouchNothing) {
  CaseOptions options = Small();
  options.q_lens = {1};
  options.kv_lens = {2};
  // The padding token is a row of NaN.
  options.k = options.v = [](int64_t token, int, int d) {
    return token == 1 ? std::nanf("") : 0.5f + d;
  };
  AttentionCase problem = Generated(options);
  problem.slot_mapping[1] = -1;
  for (int64_t last_page : {0, 1}) {
    // Also on the first and the last page of the pool.
    problem.slot_mapping[0] = last_page ? problem.num_pages * 16 - 1 : 0;
    Bench bench(problem);
    bench.Store();
    problem.slot_mapping[1] = std::numeric_limits<int64_t>::min();
  }
}

TEST(Case18, PageTableEndsWithTheAllocation) {
  CaseOptions options = Small();
  options.q_lens = {1};
  options.kv_lens = {17};
  Bench bench(Generated(options));
  // Two entries, then the guard page.
  ASSERT_EQ(bench.problem.page_table.size(), 2u);
  bench.Store();
  bench.ExpectAllRight(bench.target->AttentionArguments());
}

TEST(Case21, PagesThatDoNotDivideTiles) {
  for (int page_size : {48, 96, 192}) {
    CaseOptions options = Small();
    options.page_size = page_size;
    options.q_lens = {1, 20};
    options.kv_lens = {400, 193};
    ExpectCaseRight(options, 0, 1);
  }
}

TEST(Case22, LongSequenceOfPage256) {
  CaseOptions options = Small();
  options.num_q_heads = options.num_kv_heads = 1;
  options.page_size = 256;
  options.q_lens = {1};
  options.kv_lens = {6144};
  ExpectCaseRight(options, 0, 1);
}

TEST(Case23, WideValuesComeFromTheirOwnPages) {
  CaseOptions options = Small("e4m3_row", 256);
  options.q_lens = {1};
  options.kv_lens = {64};
  // Values tell the page they lie on.
  options.v = [](int64_t token, int, int) { return 1.0f + token / 16; };
  ExpectCaseRight(options, 0, 1);
}

TEST(Case40, SourceAlignedToTwoBytesOnly) {
  for (int head_dim : {64, 80, 96, 112}) {
    Bench bench(Generated(Small("e4m3_row", head_dim)));
    StoreArgs args = bench.target->StoreArguments();
    const int64_t bytes = args.k_src.token_stride * bench.problem.tokens();
    TargetBuffer moved = Buffer(bytes + 2, 16);
    std::memcpy(moved.as<unsigned char>() + 2, args.k_src.base, bytes);
    args.k_src.base = moved.as<unsigned char>() + 2;
    KVFORGE_EXPECT_OK(
        bench.target->Store(*bench.Kernel(KernelKind::kStore), args));
    KVFORGE_EXPECT_OK(bench.target->CheckStored());
  }
}

TEST(Case42, MoreUnitsThanAGridAxisHolds) {
  CaseOptions options = Small();
  options.num_q_heads = options.num_kv_heads = 1;
  options.page_size = 1;
  options.q_lens.assign(65537, 0);
  options.kv_lens.assign(65537, 0);
  options.q_lens[0] = options.q_lens[65536] = 1;
  options.kv_lens[0] = options.kv_lens[65536] = 3;
  Bench bench(Generated(options));
  bench.Store();
  KVFORGE_EXPECT_OK(bench.target->Decode(
      *bench.Decoder(), bench.target->AttentionArguments(), 1));
  bench.ExpectRight("decode");
  KVFORGE_EXPECT_OK(bench.target->Extend(*bench.Kernel(KernelKind::kExtend),
                                         bench.target->AttentionArguments()));
  bench.ExpectRight("extend");
}

}  // namespace
}  // namespace kvforge
