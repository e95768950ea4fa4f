// What is known of views is known of exactly these.
#include "kernels/known_views.h"

#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace kvforge {
namespace {

unsigned char* Address(int index) {
  return reinterpret_cast<unsigned char*>(static_cast<uintptr_t>(index) << 20);
}

ViewKey Key() {
  const StridedBytes codes = {Address(1), 4096, 256, 128};
  const StridedBytes rows = {Address(2), 64, 4, 2048};
  const StridedBytes blocks = {Address(3), 512, 8, 1024};
  const CacheView view = {codes, rows, blocks, nullptr, 0.5f};
  return {view, view, 8, 1};
}

ViewFacts Facts(int code_bytes) {
  ViewFacts facts = {};
  facts.k_code_bytes = code_bytes;
  return facts;
}

// The k_code_bytes kept for `key`; 0 for none.
int Found(const KnownViews& views, const ViewKey& key) {
  int found = 0;
  const bool known = views.Find(
      key, [&](const ViewFacts& facts) { found = facts.k_code_bytes; });
  EXPECT_EQ(known, found != 0);
  return found;
}

TEST(KnownViews, EachFieldOfTheCallersCounts) {
  KnownViews views;
  EXPECT_EQ(Found(views, Key()), 0);
  views.Keep(Key(), Facts(16));
  EXPECT_EQ(Found(views, Key()), 16);
  std::vector<std::function<void(ViewKey&)>> changes = {
      [](ViewKey& key) { ++key.num_kv_heads; },
      [](ViewKey& key) { ++key.heads_per_block_log2; },
  };
  for (CacheView ViewKey::*side : {&ViewKey::k, &ViewKey::v}) {
    for (StridedBytes CacheView::*plane :
         {&CacheView::codes, &CacheView::row_scale, &CacheView::block_scale}) {
      changes.push_back([=](ViewKey& key) { ++(key.*side.*plane).base; });
      changes.push_back(
          [=](ViewKey& key) { ++(key.*side.*plane).page_stride; });
      changes.push_back(
          [=](ViewKey& key) { ++(key.*side.*plane).slot_stride; });
      changes.push_back(
          [=](ViewKey& key) { ++(key.*side.*plane).head_stride; });
    }
    changes.push_back([=](ViewKey& key) { (key.*side).scale *= 2; });
    changes.push_back([=](ViewKey& key) {
      (key.*side).scale = std::numeric_limits<float>::quiet_NaN();
    });
    changes.push_back([=](ViewKey& key) {
      (key.*side).scale_ptr = reinterpret_cast<const float*>(Address(4));
    });
  }
  for (size_t i = 0; i < changes.size(); ++i) {
    ViewKey changed = Key();
    changes[i](changed);
    EXPECT_EQ(Found(views, changed), 0) << "change " << i;
  }
  // Widths are what checks fill in.
  ViewKey checked = Key();
  checked.k.code_bytes = 8;
  checked.v.block_scale_bytes = 1;
  EXPECT_EQ(Found(views, checked), 16);
}

TEST(KnownViews, AddressesWithoutEndAndThreads) {
  KnownViews views;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&views, t] {
      for (int i = 0; i < 3000; ++i) {
        ViewKey key = Key();
        key.k.codes.base = Address(1 + i);
        key.num_kv_heads = t;
        const int found = Found(views, key);
        EXPECT_TRUE(found == 0 || found == 1 + i) << found;
        views.Keep(key, Facts(1 + i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The first are long gone.
  ViewKey first = Key();
  first.num_kv_heads = 0;
  EXPECT_EQ(Found(views, first), 0);
}

}  // namespace
}  // namespace kvforge
