// Faults of addressing that reached users of such libraries: the smallest input
// of each. Numbers are those of docs/cases.md.
#include <algorithm>
#include <cmath>

#include "kernels/layer_map.h"
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

// Copies rows to where a view with other strides has them; both on the target.
void Scatter(const unsigned char* from, int64_t from_stride, unsigned char* to,
             int64_t to_stride, int64_t row_bytes, int64_t rows) {
  std::vector<unsigned char> row(row_bytes);
  for (int64_t i = 0; i < rows; ++i) {
    ReadTarget(row.data(), from + i * from_stride, row_bytes);
    WriteTarget(to + i * to_stride, row.data(), row_bytes);
  }
}

TEST(Case01, SourcesWithPitchesOfTheirOwn) {
  CaseOptions options = Small("e4m3_row", 128);
  options.num_q_heads = options.num_kv_heads = 3;
  options.q_lens = {1};
  options.kv_lens = {8};
  Bench bench(Generated(options));
  const auto kernel = bench.Kernel(KernelKind::kStore);
  // Elements of 2 bytes: 1152 a row of fused q, k and v; 384 a dense one.
  TargetBuffer fused = Allocated(8 * 1152 * 2);
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
    TargetBuffer k = Allocated(stride * bench.problem.num_pages);
    TargetBuffer v = Allocated(stride * bench.problem.num_pages);
    store.k.codes.base = k.as<unsigned char>();
    store.v.codes.base = v.as<unsigned char>();
    store.k.codes.page_stride = store.v.codes.page_stride = stride;
    KVFORGE_EXPECT_OK(
        bench.target->Store(*bench.Kernel(KernelKind::kStore), store));
    attention.k = store.k;
    attention.v = store.v;
    bench.ExpectAllRight(attention);
    // The codes are those of a dense cache, which nothing else was written to.
    constexpr int64_t kSlotBytes = 2 * 64;
    const AttentionArgs dense = bench.target->AttentionArguments();
    for (int64_t slot : bench.problem.slot_mapping) {
      const int64_t in_page = slot % 16 * kSlotBytes;
      for (const auto& [from, to] :
           {std::pair{k.as<unsigned char>(), dense.k.codes.base},
            {v.as<unsigned char>(), dense.v.codes.base}}) {
        Scatter(from + slot / 16 * stride + in_page, 0,
                to + slot / 16 * page_bytes + in_page, 0, kSlotBytes, 1);
      }
    }
    KVFORGE_EXPECT_OK(bench.target->CheckStored());
  }
}

TEST(Case04, RowStridesPast32Bits) {
  CaseOptions options = Small();
  options.kv_lens = {3, 5};  // eight rows 3 GiB apart
  Bench bench(Generated(options));
  bench.Store();
  const int64_t stride = int64_t{3} << 30;
  const int64_t rows = bench.problem.total_q();
  AttentionArgs args = bench.target->AttentionArguments();
  TargetBuffer q = Allocated(stride * rows);
  Scatter(args.q, args.q_token_stride, q.as<unsigned char>(), stride,
          args.q_token_stride, rows);
  args.q = q.as<const unsigned char>();
  args.q_token_stride = stride;
  bench.ExpectAllRight(args);

  Bench fresh(bench.problem);
  StoreArgs store = fresh.target->StoreArguments();
  const int64_t tokens = bench.problem.tokens();
  TargetBuffer source = Allocated(stride * tokens);
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
  TargetBuffer pool = Allocated(pages * plane * 4);
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

// Block g of a row has magnitude g + 1 times a power of two: a scale read from
// another block's place changes the scores and the output. The bytes in the
// cache are in order of g, as docs/formats.md has them.
TEST(Case08, BlockScalesLieInOrderOfTheirBlocks) {
  for (const char* format : {"nvfp4_row", "nvfp4", "mxfp8", "mxfp4"}) {
    CaseOptions options = Small(format, 128);
    options.k_scale = options.v_scale = 1;
    const int block = (*FindFormat(format))->block;
    options.k = options.v = [block](int64_t token, int head, int d) {
      const int g = d / block;
      return std::ldexp(static_cast<float>(d % 4 + 1), g - 3) *
             (token % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(head + 1);
    };
    // Query t looks at one block of the keys only.
    options.q = [block](int64_t token, int, int d) {
      return d / block == token ? 0.25f : 0.0f;
    };
    Bench bench(Generated(options));
    bench.Store();
    bench.ExpectAllRight(bench.target->AttentionArguments());
    const CacheView view = bench.target->StoreArguments().k;
    const int64_t slot = bench.problem.slot_mapping[0];
    std::vector<uint8_t> scales(128 / block);
    ReadTarget(scales.data(),
               view.block_scale.base +
                   slot / 16 * view.block_scale.page_stride +
                   slot % 16 * view.block_scale.slot_stride,
               scales.size());
    EXPECT_TRUE(std::is_sorted(scales.begin(), scales.end())) << format;
    EXPECT_LT(scales.front(), scales.back()) << format;
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
  const TargetBuffer buffer = Uploaded(slots);
  args.slots = buffer.as<long long>();
  KVFORGE_EXPECT_OK(
      bench.target->Store(*bench.Kernel(KernelKind::kStore), args));
  std::vector<int64_t> stored(problem.tokens(), -1);
  stored[0] = slots[0];
  KVFORGE_EXPECT_OK(bench.target->cache().CheckStored(bench.problem.k,
                                                      bench.problem.v, stored));
}

// Layers 1 and 3 of a model in a pool of two: codes and scales go by one index.
TEST(Case11, CodesAndScalesOfALayerShareItsIndexInThePool) {
  const absl::StatusOr<LayerMap> map = LayerMap::Create({1, 3});
  ASSERT_TRUE(map.ok()) << map.status();
  ASSERT_EQ(map->size(), 2);
  std::vector<std::unique_ptr<Bench>> layers;
  for (int layer : {1, 3}) {
    CaseOptions options = Small();
    options.seed = layer;
    layers.push_back(std::make_unique<Bench>(Generated(options)));
  }
  const AttentionCase& problem = layers[0]->problem;
  const CacheGeometry geometry = GeometryOf(problem, kCaseLayouts[0]);
  const auto plane_bytes = [&](PlaneKind kind) {
    return PlaneBufferBytes(geometry, CacheSide::kKey, kind, problem.num_pages);
  };
  const int64_t codes_bytes = plane_bytes(PlaneKind::kCodes);
  const int64_t scales_bytes = plane_bytes(PlaneKind::kRowScale);
  TargetBuffer codes = Allocated(2 * 2 * codes_bytes);
  TargetBuffer scales = Allocated(2 * 2 * scales_bytes);
  KVFORGE_EXPECT_OK(codes.Fill(kPoison));
  KVFORGE_EXPECT_OK(scales.Fill(kPoison));
  // [layer of the pool, K or V, page, ...]
  const auto place = [&](int layer, CacheView& view, int side) {
    const absl::StatusOr<int> index = map->IndexOf(layer);
    ASSERT_TRUE(index.ok()) << index.status();
    view.codes.base =
        codes.as<unsigned char>() + (*index * 2 + side) * codes_bytes;
    view.row_scale.base =
        scales.as<unsigned char>() + (*index * 2 + side) * scales_bytes;
  };
  for (int i = 0; i < 2; ++i) {
    StoreArgs args = layers[i]->target->StoreArguments();
    place(2 * i + 1, args.k, 0);
    place(2 * i + 1, args.v, 1);
    KVFORGE_EXPECT_OK(
        layers[i]->target->Store(*layers[i]->Kernel(KernelKind::kStore), args));
  }
  for (int i = 0; i < 2; ++i) {
    AttentionArgs args = layers[i]->target->AttentionArguments();
    place(2 * i + 1, args.k, 0);
    place(2 * i + 1, args.v, 1);
    layers[i]->ExpectAllRight(args);
  }
  EXPECT_EQ(map->IndexOf(2).status().message(),
            "layer map: layer 2 is not in this pool; it holds layers 1, 3; use "
            "the pool that holds the layer");
  EXPECT_EQ(LayerMap::Create({1, 3, 1}).status().message(),
            "layer map: layer 1 is named twice; a layer lies in a pool once; "
            "take one out");
  EXPECT_EQ(LayerMap::Create({-1}).status().message(),
            "layer map: layer -1 is negative; layers count from 0; correct the "
            "list");
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
    TargetBuffer moved = Allocated(bytes + 2, 16);
    Scatter(args.k_src.base, 0, moved.as<unsigned char>() + 2, 0, bytes, 1);
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
