// The miniature engine's pages: who holds them, where tokens lie, and how a
// budget becomes pools. No kernel runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "examples/engine/block_selection.h"
#include "examples/engine/cache_pool.h"
#include "examples/engine/page_tables.h"

namespace kvforge::example {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kPage = 4;  // tokens

// ---- PageAllocator ----

TEST(PageAllocator, RefusesWhenAllAreHeld) {
  PageAllocator pages(2);
  const int first = *pages.Allocate();
  const int second = *pages.Allocate();
  EXPECT_NE(first, second);
  const absl::Status full = pages.Allocate().status();
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr("all 2 pages"));
  pages.Release(first);
  EXPECT_EQ(*pages.Allocate(), first);
  EXPECT_EQ(pages.most_held(), 2);
}

TEST(PageAllocator, SharedPageIsHeldUntilItsLastHolderLeaves) {
  PageAllocator pages(1);
  const int page = *pages.Allocate();
  pages.Share(page);
  pages.Release(page);
  EXPECT_EQ(pages.holders(page), 1);
  EXPECT_FALSE(pages.Allocate().ok());
  pages.Release(page);
  EXPECT_EQ(pages.held(), 0);
  EXPECT_TRUE(pages.Allocate().ok());
}

TEST(PageAllocator, ReleasedPageIsFoundUntilItIsHandedOutAgain) {
  PageAllocator pages(3);
  const int a = *pages.Allocate(), b = *pages.Allocate();
  pages.SetKey(a, "a");
  pages.SetKey(b, "b");
  pages.Release(b);
  pages.Release(a);
  EXPECT_EQ(pages.Find("a"), a);
  pages.Share(a);  // off the list of free pages
  EXPECT_EQ(pages.held(), 1);
  EXPECT_NE(*pages.Allocate(), a);
  EXPECT_NE(*pages.Allocate(), a);
  EXPECT_EQ(pages.Find("b"), kNoPage);
  EXPECT_EQ(pages.Find("a"), a);
}

TEST(PageAllocator, LeastRecentlyReleasedPageGoesFirst) {
  PageAllocator pages(3);
  const int a = *pages.Allocate(), b = *pages.Allocate(), c = *pages.Allocate();
  pages.SetKey(a, "a");
  pages.SetKey(b, "b");
  pages.Release(b);
  pages.Release(a);
  pages.Release(c);  // without a key: of no use to anybody
  EXPECT_THAT((std::vector<int>{*pages.Allocate(), *pages.Allocate(),
                                *pages.Allocate()}),
              ElementsAre(c, b, a));
}

TEST(PageAllocator, OneOfTwoEqualPagesIsFound) {
  PageAllocator pages(2);
  const int a = *pages.Allocate(), b = *pages.Allocate();
  pages.SetKey(a, "same");
  pages.SetKey(b, "same");
  EXPECT_EQ(pages.Find("same"), a);
  pages.Release(b);
  EXPECT_EQ(*pages.Allocate(), b);
  EXPECT_EQ(pages.Find("same"), a);
}

// ---- Pools ----

// Layers of e4m3_row, 2 kv heads of 64: 2 * 2 * (64 + 4) = 272 bytes a token.
ModelPlan Model(std::vector<int> windows) {
  ModelPlan model;
  for (const int window : windows) {
    PlannedLayer planned;
    planned.layer.index = static_cast<int>(model.layers.size());
    planned.layer.geometry = {8, 2, 64, 64, window};
    planned.k_format = planned.v_format = *FindFormat("e4m3_row");
    model.layers.push_back(planned);
  }
  return model;
}
constexpr int64_t kPageBytes = 272 * kPage;  // of one layer

TEST(PoolPlan, LayersOfOneWindowShareAPool) {
  const ModelPlan model = Model({8, 0, 8, 0, 16});
  const std::vector<PoolPlan> hybrid =
      PlanPools(model, PoolKind::kHybrid, kPage);
  ASSERT_EQ(hybrid.size(), 3u);
  EXPECT_THAT(hybrid[0].layers, ElementsAre(0, 2));
  EXPECT_EQ(hybrid[0].window, 8);
  EXPECT_THAT(hybrid[1].layers, ElementsAre(1, 3));
  EXPECT_EQ(hybrid[1].window, 0);
  EXPECT_THAT(hybrid[2].layers, ElementsAre(4));
  const std::vector<PoolPlan> uniform =
      PlanPools(model, PoolKind::kUniform, kPage);
  ASSERT_EQ(uniform.size(), 1u);
  EXPECT_THAT(uniform[0].layers, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(uniform[0].window, 0);
}

TEST(PoolPlan, LayersOfAnotherGeometryOrFormatDoNot) {
  ModelPlan model = Model({0, 0, 0});
  model.layers[1].layer.geometry.kv_heads = 4;
  model.layers[2].v_format = *FindFormat("bf16");
  EXPECT_EQ(PlanPools(model, PoolKind::kUniform, kPage).size(), 3u);
}

// Window 8 sees 7 keys and its own, from anywhere in a page on: ceil(10 / 4) =
// 3 pages, one that is written to and 3 that are kept, 2 sequences; and a step
// of 8 tokens: 2 * 7 + 2 = 16 pages of 2 layers.
TEST(PoolPlan, BudgetInBytes) {
  std::vector<PoolPlan> pools =
      PlanPools(Model({8, 0, 8}), PoolKind::kHybrid, kPage);
  const int64_t window_bytes = 16 * 2 * kPageBytes;
  ASSERT_TRUE(
      SizePools({window_bytes + 10 * kPageBytes + 100, 2, 8}, pools).ok());
  EXPECT_EQ(pools[0].num_pages, 16);
  EXPECT_EQ(pools[1].num_pages, 10);
  ASSERT_TRUE(SizePools({window_bytes + kPageBytes, 2, 8}, pools).ok());
  EXPECT_EQ(pools[1].num_pages, 1);
  const absl::Status small =
      SizePools({window_bytes + kPageBytes - 1, 2, 8}, pools);
  EXPECT_TRUE(absl::IsResourceExhausted(small)) << small;
  EXPECT_THAT(std::string(small.message()),
              HasSubstr(absl::StrCat("give at least ",
                                     window_bytes + kPageBytes, " bytes")));
}

TEST(CachePool, LayersLieDenselyAndOthersAreRefused) {
  const auto engine = Engine::Create({});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const ModelPlan model = Model({8, 0, 8, 0});
  PoolPlan plan = PlanPools(model, PoolKind::kHybrid, kPage)[1];
  plan.num_pages = 3;
  const auto pool = CachePool::Create(**engine, model, plan);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->num_slots(), 12);
  const CacheView first = *pool->View(1, CacheSide::kKey);
  const CacheView second = *pool->View(3, CacheSide::kKey);
  // 12 slots of 2 heads.
  EXPECT_EQ(second.codes.base - first.codes.base, 12 * 2 * 64);
  EXPECT_EQ(second.row_scale.base - first.row_scale.base, 12 * 2 * 4);
  const absl::Status other = pool->View(2, CacheSide::kKey).status();
  EXPECT_TRUE(absl::IsInvalidArgument(other)) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("layer 2"));
}

// ---- PageTables ----

constexpr int kFull = 0, kWindow = 1;  // pools

PageTables Tables(int full_pages, int window_pages, int window = 6) {
  std::vector<PoolPlan> plans =
      PlanPools(Model({0, window}), PoolKind::kHybrid, kPage);
  plans[kFull].num_pages = full_pages;
  plans[kWindow].num_pages = window_pages;
  return PageTables(plans);
}

std::vector<int> Tokens(int count) {
  std::vector<int> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 100);
  return tokens;
}

// A sequence whose tokens are all in the cache.
SequencePages Cached(PageTables& tables, const std::vector<int>& tokens) {
  SequencePages sequence;
  const int reused = tables.Reuse(tokens, sequence);
  // A page at a time, as decode does.
  for (int end = reused; end < static_cast<int>(tokens.size());) {
    end = std::min(end + kPage, static_cast<int>(tokens.size()));
    EXPECT_TRUE(tables.Reserve(end, sequence).ok());
    tables.Commit(absl::MakeConstSpan(tokens).subspan(0, end), sequence);
  }
  return sequence;
}

int Held(const std::vector<int>& table) {
  return static_cast<int>(table.size() -
                          std::count(table.begin(), table.end(), kNoPage));
}

TEST(PageTables, PagesBehindTheWindowGoBack) {
  PageTables tables = Tables(8, 8);
  const SequencePages sequence = Cached(tables, Tokens(18));
  EXPECT_EQ(Held(sequence.tables[kFull]), 5);
  // The query at 18 sees 13 to 18: pages 3 and 4.
  EXPECT_EQ(sequence.tables[kWindow][2], kNoPage);
  EXPECT_NE(sequence.tables[kWindow][3], kNoPage);
  EXPECT_EQ(tables.pool(kWindow).held(), 2);
  EXPECT_EQ(tables.Slot(kFull, sequence, 17),
            sequence.tables[kFull][4] * kPage + 1);
}

// From position 16 the window of 6 sees token 11, the last of page 2; from 17
// it does not.
TEST(PageTables, PageStaysWhileOneOfItsTokensIsSeen) {
  PageTables tables = Tables(8, 8);
  SequencePages sequence = Cached(tables, Tokens(16));
  EXPECT_EQ(sequence.tables[kWindow][1], kNoPage);
  EXPECT_NE(sequence.tables[kWindow][2], kNoPage);
  ASSERT_TRUE(tables.Reserve(17, sequence).ok());
  tables.Commit(Tokens(17), sequence);
  EXPECT_EQ(sequence.tables[kWindow][2], kNoPage);
}

TEST(PageTables, PrefixIsSharedWhileItIsHeldAndAfterwards) {
  PageTables tables = Tables(16, 16);
  const std::vector<int> tokens = Tokens(12);
  SequencePages first = Cached(tables, tokens);
  std::vector<int> longer = Tokens(15);
  SequencePages second;
  EXPECT_EQ(tables.Reuse(longer, second), 12);
  EXPECT_EQ(second.tables[kFull], first.tables[kFull]);
  EXPECT_EQ(tables.pool(kFull).holders(first.tables[kFull][0]), 2);
  tables.Release(first);
  tables.Release(second);
  EXPECT_EQ(tables.pool(kFull).held(), 0);
  EXPECT_EQ(tables.pool(kWindow).held(), 0);
  EXPECT_EQ(tables.Reuse(longer, second), 12);
}

TEST(PageTables, LastTokenIsLeftToCompute) {
  PageTables tables = Tables(16, 16);
  Cached(tables, Tokens(12));
  SequencePages again;
  EXPECT_EQ(tables.Reuse(Tokens(12), again), 8);
  SequencePages one;
  EXPECT_EQ(tables.Reuse(Tokens(1), one), 0);
  EXPECT_EQ(one.tables.size(), 2u);
}

TEST(PageTables, PrefixEndsWhereTheTextDiffers) {
  PageTables tables = Tables(16, 16);
  Cached(tables, Tokens(12));
  std::vector<int> other = Tokens(12);
  other[5] = 0;
  SequencePages sequence;
  EXPECT_EQ(tables.Reuse(other, sequence), 4);
}

// What a page holds depends on all tokens before it, also on those behind the
// window.
TEST(PageTables, PageOfTheSameTokensBehindOtherOnesIsAnother) {
  std::vector<PoolPlan> plans = PlanPools(Model({6}), PoolKind::kHybrid, kPage);
  plans[0].num_pages = 8;
  PageTables tables(plans);
  Cached(tables, Tokens(17));
  std::vector<int> other = Tokens(17);
  other[0] = 0;
  SequencePages sequence;
  EXPECT_EQ(tables.Reuse(other, sequence), 0);
  EXPECT_EQ(tables.Reuse(Tokens(17), sequence), 16);
}

// The window's pool hands pages 0 and 1 of the prefix out again: it is of use
// at its end, where the window sees pages 2 and 3 only, and not before.
TEST(PageTables, PrefixNeedsItsLastWindowOnly) {
  PageTables tables = Tables(16, 4);
  SequencePages first = Cached(tables, Tokens(16));
  SequencePages other;
  ASSERT_EQ(tables.Reuse(std::vector<int>{1}, other), 0);
  ASSERT_TRUE(tables.Reserve(2 * kPage, other).ok());
  SequencePages whole;
  EXPECT_EQ(tables.Reuse(Tokens(17), whole), 16);
  EXPECT_EQ(whole.tables[kWindow][1], kNoPage);
  SequencePages part;
  EXPECT_EQ(tables.Reuse(Tokens(12), part), 0);
  EXPECT_EQ(Held(part.tables[kFull]), 0);
}

TEST(PageTables, RejectedTokensGiveTheirPagesBack) {
  PageTables tables = Tables(4, 4);
  const std::vector<int> tokens = Tokens(7);
  SequencePages sequence = Cached(tables, tokens);
  ASSERT_TRUE(tables.Reserve(12, sequence).ok());
  EXPECT_EQ(tables.pool(kFull).held(), 3);
  tables.Commit(tokens, sequence);
  EXPECT_EQ(tables.pool(kFull).held(), 2);
  EXPECT_EQ(sequence.keys.size(), 1u);  // page 1 is not full
}

TEST(PageTables, RefusalLeavesWhatCommitGivesBack) {
  PageTables tables = Tables(2, 8);
  SequencePages sequence = Cached(tables, Tokens(4));
  EXPECT_TRUE(absl::IsResourceExhausted(tables.Reserve(12, sequence)));
  tables.Commit(Tokens(4), sequence);
  EXPECT_EQ(tables.pool(kFull).held(), 1);
  EXPECT_EQ(tables.pool(kWindow).held(), 1);
}

// ---- SelectBlocks ----

// Queries in block 9, of the segment of blocks 8 to 11; 2 kv heads.
TEST(SelectBlocks, FirstStridedAndOwnSegment) {
  std::vector<int> selected(2 * 8, 7);
  SelectBlocks(/*block_tokens=*/16, /*num_kv_heads=*/2, 9 * 16, 9 * 16 + 3,
               absl::MakeSpan(selected));
  EXPECT_THAT(selected, ElementsAre(0, 2, 4, 6, 8, 9, -1, -1,  //
                                    0, 1, 3, 5, 7, 8, 9, -1));
}

}  // namespace
}  // namespace kvforge::example
