// Extend in tiles of warpgroups, with images in a workspace and without: each
// of their parts where it could go wrong, beside the other extend kernel on the
// same case. On GPUs without products of
// warpgroups only that other one runs.
#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "compiler/tile/memory_model.h"
#include "compiler/tile/tile_selector.h"
#include "gmock/gmock.h"
#include "kernels/extend.h"
#include "kernels/target_memory.h"
#include "runtime/base/status_macros.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

CaseOptions Options(const char* format, std::vector<int> q_lens,
                    std::vector<int> kv_lens) {
  CaseOptions options;
  options.name = absl::StrCat("warpgroups ", format);
  options.format = format;
  options.head_dim = 64;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.q_lens = std::move(q_lens);
  options.kv_lens = std::move(kv_lens);
  return options;
}

// Several tiles of keys, a block of rows and a part of one, sequences without
// queries and without keys.
class WarpgroupFormats : public ::testing::TestWithParam<const char*> {};

TEST_P(WarpgroupFormats, MatchTheReference) {
  ExpectCaseRight(Options(GetParam(), {70, 0, 3, 2}, {333, 20, 3, 0}), 1, 2);
}

TEST_P(WarpgroupFormats, AtHeadDim128) {
  CaseOptions options = Options(GetParam(), {33}, {150});
  options.head_dim = 128;
  ExpectCaseRight(options, 2, 1);
}

INSTANTIATE_TEST_SUITE_P(
    All, WarpgroupFormats,
    ::testing::Values("bf16", "f16", "e4m3_tensor", "e4m3_head", "e4m3_channel",
                      "e4m3_row", "e5m2_tensor", "int8_row", "int4_row",
                      "nvfp4_row", "nvfp4"),
    [](const auto& info) { return std::string(info.param); });

TEST(Warpgroups, TakeKAndVOfDifferentSizes) {
  CaseOptions options = Options("bf16", {40, 9}, {100, 9});
  options.v_format = "nvfp4_row";
  options.head_dim = 192;
  options.v_head_dim = 128;
  ExpectCaseRight(options, 0, 1);
  options.format = "int4_row";
  options.v_format = "f16";
  options.head_dim = 64;
  options.v_head_dim = 192;
  ExpectCaseRight(options, 3, 1);
}

// Queries in two parts.
TEST(Warpgroups, TakeQueriesOfF32) {
  CaseOptions options = Options("int8_row", {70}, {150});
  options.query_type = options.out_type = DType::kF32;
  options.sm_scale = 1;  // standard deviation of the scores: 8
  ExpectCaseRight(options, 0, 1);
}

// A row that few heavy keys decide, its weights narrowed to bf16: what they
// lose goes into a second product.
TEST(Warpgroups, MultiplyTheRestOfHeavyWeights) {
  for (int seed = 1; seed <= 4; ++seed) {
    CaseOptions options = Options("bf16", {17, 40}, {60, 250});
    options.causal = false;
    options.sm_scale = 0.25f;  // standard deviation of the scores: 2
    options.out_type = DType::kF32;
    options.seed = seed;
    const AttentionCase problem = Generated(options);
    if (ListingSpecs()) {
      PrepareCase(problem, 0, 1);
      continue;
    }
    for (const KernelResult& result :
         RunCase(TestEngine(), problem, 0, 1, WithOtherTiles()).results) {
      KVFORGE_EXPECT_OK(result.status);
      EXPECT_LT(result.errors.out_ratio, 0.6)
          << result.kernel << ", seed " << seed;
    }
  }
}

// The first channel of keys that grow up to key `last`, and are 0 behind it.
float GrowingKey(int64_t token, int64_t last) {
  return token <= last ? static_cast<float>(token) / 8 : 0.0f;
}

// Scores that grow from tile to tile raise the references of every row: up to
// its last key, or to one in a tile that is wholly seen.
TEST(Warpgroups, RaiseReferencesFromTileToTile) {
  for (const int64_t last : {500, 250}) {
    for (const DType type : {DType::kBf16, DType::kF32}) {
      CaseOptions options = Options("e4m3_row", {20}, {500});
      options.query_type = options.out_type = type;
      options.k = [=](int64_t token, int, int d) {
        return d == 0 ? GrowingKey(token, last) : 0.25f;
      };
      // The second part of an f32 holds what bf16 does not.
      options.q = [](int64_t, int, int d) { return d == 0 ? 16.03f : 1.0f; };
      options.sm_scale = 1;
      ExpectCaseRight(options, 0, 1);
    }
  }
}

// Scores that grow for the rows of one token alone, and fall for the others: of
// several warps.
TEST(Warpgroups, RaiseReferencesOfOneRow) {
  for (const int64_t grows : {33, 45, 58}) {
    CaseOptions options = Options("e4m3_row", {60}, {400});
    options.k = [](int64_t token, int, int d) {
      return d == 0 ? GrowingKey(token, 250) : 0.25f;
    };
    options.q = [=](int64_t token, int, int d) {
      return token == grows && d == 0 ? 16.0f : -1.0f / 64;
    };
    options.sm_scale = 1;
    ExpectCaseRight(options, 0, 1);
  }
}

// Scales of V that grow from tile to tile, under scores that do not, those of
// odd keys ahead of the others.
TEST(Warpgroups, RaiseReferencesForGrowingValues) {
  CaseOptions options = Options("e4m3_row", {20}, {500});
  options.v = [](int64_t token, int head, int d) {
    return std::ldexp(1.0f + static_cast<float>((token + head + d) % 5) / 8,
                      static_cast<int>(token / 16 + token % 2 * 8) - 16);
  };
  ExpectCaseRight(options, 0, 1);
}

// Scales of V that fall from key to key: no reference is raised for them.
TEST(Warpgroups, KeepReferencesForFallingValues) {
  CaseOptions options = Options("e4m3_row", {20}, {500});
  options.v = [](int64_t token, int head, int d) {
    return std::ldexp(1.0f + static_cast<float>((token + head + d) % 5) / 8,
                      -static_cast<int>(token / 64));
  };
  ExpectCaseRight(options, 0, 1);
}

// Scales of V that lie far apart within 16 keys, under scores that leave those
// of the smallest the weight: folded into V's images up to a spread of 2^16.
TEST(Warpgroups, KeepScalesOfVThatLieFarApart) {
  for (const int octaves : {1, 3}) {  // from key to key
    CaseOptions options = Options("e4m3_row", {20}, {400});
    options.out_type = DType::kF32;
    options.v = [=](int64_t token, int head, int d) {
      return std::ldexp(1.0f + static_cast<float>((token + head + d) % 5) / 8,
                        static_cast<int>(token % 16) * octaves - 8);
    };
    options.k = [=](int64_t token, int, int d) {
      return d == 0 ? static_cast<float>(15 - token % 16) * octaves : 0.25f;
    };
    options.q = [](int64_t, int, int d) { return d == 0 ? 2.0f : 0.125f; };
    options.sm_scale = 1;
    ExpectCaseRight(options, 0, 1);
  }
}

// Rows of q that f16 holds as they are, beside those that it does not; and rows
// of which it would hold few bits, against keys that make up for their size.
TEST(Warpgroups, TakeQueriesOfAnySize) {
  const struct {
    int least, octaves, keys;  // exponents of q, from the least on; of K
  } ranges[] = {{-30, 48, -12}, {-28, 8, 24}};
  for (const auto& range : ranges) {
    for (const DType type : {DType::kBf16, DType::kF32}) {
      CaseOptions options = Options("e4m3_row", {40}, {400});
      options.query_type = options.out_type = type;
      options.q = [=](int64_t token, int head, int d) {
        return std::ldexp(
                   1.0f + static_cast<float>((token + head + d) % 7) / 8,
                   static_cast<int>(token * 7 % range.octaves) + range.least) *
               ((token + d) % 3 == 0 ? -1.0f : 1.0f);
      };
      options.k = [=](int64_t token, int head, int d) {
        return std::ldexp(
            static_cast<float>((token * 5 + head + d * 3) % 9) - 4, range.keys);
      };
      ExpectCaseRight(options, 0, 1);
    }
  }
}

TEST(Warpgroups, TakeANegativeScale) {
  for (const char* format : {"bf16", "e4m3_row", "int4_row"}) {
    CaseOptions options = Options(format, {70}, {200});
    options.sm_scale = -0.25f;
    ExpectCaseRight(options, 0, 1);
  }
}

// More sequences than a warp has lanes, some without tiles of keys.
TEST(Warpgroups, TakeManySequences) {
  std::vector<int> q_lens;
  std::vector<int> kv_lens;
  for (int i = 0; i < 37; ++i) {
    q_lens.push_back(i % 5 == 2 ? 0 : 1 + i % 3);
    kv_lens.push_back(i % 7 == 4 ? 0 : 5 + i * 29 % 140);
  }
  ExpectCaseRight(Options("e4m3_row", q_lens, kv_lens), 0, 1);
}

TEST(Warpgroups, KeepToWindowMaskAndSoftcap) {
  CaseOptions options = Options("e4m3_row", {90, 5}, {260, 100});
  options.window = 70;
  options.softcap = 5;
  options.sinks = true;
  ExpectCaseRight(options, 0, 1);
  options.causal = false;
  options.alibi = true;
  ExpectCaseRight(options, 1, 1);
  options.alibi = options.sinks = false;
  options.window = 0;
  options.softcap = 0;
  options.mask = [](int b, int t, int j) {
    return t % 7 != 3 && (t * 131 + j * 71 + b * 17) % 7 < 3;
  };
  ExpectCaseRight(options, 0, 1);
}

// Keys 128 to 255 are a tile that tokens 25 on see wholly.
TEST(Warpgroups, MaskTilesThatAreWhollySeenByTheLastRowsAlone) {
  ExpectCaseRight(Options("e4m3_row", {70}, {300}), 0, 1);
}

// Pages that divide no tile, one token a page, and a group that divides no
// block of rows.
TEST(Warpgroups, TakeAnyPageAndGroup) {
  for (const int page_size : {1, 48}) {
    CaseOptions options = Options("e4m3_row", {30, 50}, {170, 65});
    options.page_size = page_size;
    options.num_q_heads = 14;
    ExpectCaseRight(options, page_size % 2, 1);
  }
}

// The bench's extend in a tile of images; kResourceExhausted without one.
absl::StatusOr<std::shared_ptr<const PreparedKernel>> OnImages(Bench& bench) {
  const KernelSpec spec = bench.Kernel(KernelKind::kExtend)->spec();
  ASSIGN_OR_RETURN(const Tile tile, ImagesTile(TestEngine(), spec));
  return TestEngine().Prepare(spec, tile);
}

// Rows whose keys' images the workspace does not hold become NaN; those of the
// sequence ahead of them are right.
TEST(Images, ThatAreNotThereMakeRowsNan) {
  Bench bench(Generated(Options("e4m3_row", {5, 5}, {100, 300})), 0);
  const auto kernel = OnImages(bench);
  if (absl::IsResourceExhausted(kernel.status())) {
    GTEST_SKIP() << "extend on images did not run: " << kernel.status();
  }
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  if (ListingSpecs()) return;
  if (OnCuda()) GTEST_SKIP() << "reads the output where the CPU wrote it";
  bench.Store();
  ExtendParams params = {bench.target->AttentionArguments(),
                         bench.problem.num_q_heads};
  params.workspace_bytes =
      ExtendWorkspaceBytes(**kernel, {1, bench.problem.num_kv_heads, 128});
  const auto workspace =
      TargetBuffer::Allocate(TestEngine(), params.workspace_bytes, 128);
  ASSERT_TRUE(workspace.ok()) << workspace.status();
  params.workspace = workspace->data();
  KVFORGE_EXPECT_OK(RunExtend(**kernel, params, nullptr));
  const auto lse = [&](int token) {
    return params.args.lse[token * params.args.lse_token_stride];
  };
  EXPECT_TRUE(std::isfinite(lse(0)));
  EXPECT_TRUE(std::isfinite(lse(4)));
  for (int token = 5; token < 10; ++token) {
    EXPECT_TRUE(std::isnan(lse(token))) << token;
  }
}

// A workspace of a tile a pass, and fewer passes than the keys need.
TEST(Images, OfAPassAtATime) {
  Bench bench(Generated(Options("e4m3_row", {5}, {900})), 0);
  const auto kernel = OnImages(bench);
  if (absl::IsResourceExhausted(kernel.status())) {
    GTEST_SKIP() << "extend on images did not run: " << kernel.status();
  }
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  if (ListingSpecs()) return;
  if (OnCuda()) GTEST_SKIP() << "reads the output where the CPU wrote it";
  bench.Store();
  ExtendParams params = {bench.target->AttentionArguments(),
                         bench.problem.num_q_heads};
  ExtendSizes sizes = {1, bench.problem.num_kv_heads, 900};
  const int64_t at_once = ExtendWorkspaceBytes(**kernel, sizes);
  sizes.kv_tokens_per_pass = 1;
  sizes.total_q = 5;
  params.workspace_bytes = ExtendWorkspaceBytes(**kernel, sizes);
  EXPECT_LT(params.workspace_bytes, at_once);
  sizes.kv_tokens = 1 << 30;
  EXPECT_EQ(ExtendWorkspaceBytes(**kernel, sizes), params.workspace_bytes);
  const auto workspace = TargetBuffer::Allocate(TestEngine(), at_once, 128);
  ASSERT_TRUE(workspace.ok()) << workspace.status();
  params.workspace = workspace->data();
  const auto run = [&](int64_t bytes, int64_t kv_tokens) {
    ExtendParams given = params;
    given.workspace_bytes = bytes;
    given.kv_tokens = kv_tokens;
    KVFORGE_EXPECT_OK(RunExtend(**kernel, given, nullptr));
    std::vector<float> lse;
    for (int token = 0; token < 5; ++token) {
      lse.push_back(params.args.lse[token * params.args.lse_token_stride]);
    }
    return lse;
  };
  const std::vector<float> expected = run(at_once, 0);
  const std::vector<float> in_passes = run(params.workspace_bytes, 900);
  const std::vector<float> too_few = run(params.workspace_bytes, 500);
  for (int token = 0; token < 5; ++token) {
    EXPECT_TRUE(std::isfinite(expected[token])) << token;
    EXPECT_NEAR(in_passes[token], expected[token], 1e-5) << token;
    EXPECT_TRUE(std::isnan(too_few[token])) << token;
  }
  // A byte less does not hold a tile beside what passes hand on.
  params.kv_tokens = 900;
  --params.workspace_bytes;
  EXPECT_THAT(std::string(RunExtend(**kernel, params, nullptr).message()),
              ::testing::HasSubstr(absl::StrCat(
                  "supported are ", params.workspace_bytes + 1, " bytes")));
  params.kv_tokens = -1;
  EXPECT_THAT(std::string(RunExtend(**kernel, params, nullptr).message()),
              ::testing::HasSubstr("kv_tokens = -1; 0 to 274877906815 are"));
}

// On images or not, by the shape and by what is granted.
TEST(ChooseExtend, ByShapeAndGrant) {
  const Engine& engine = TestEngine();
  const KernelSpec spec = *ParseSpec("extend/e4m3_row/d128/g4/page16/bf16");
  ExtendSizes sizes = {2, 8, 100'000};
  sizes.total_q = 256;  // 1,024 rows
  constexpr int64_t kMany = int64_t{1} << 40;
  const ExtendPlan plan = ChooseExtend(engine, spec, sizes, kMany);
  if (!engine.gpu().has_warpgroup_products) {
    EXPECT_FALSE(plan.images.has_value());
    return;
  }
  ASSERT_TRUE(plan.images.has_value());
  EXPECT_EQ(*plan.images, *ImagesTile(engine, spec));
  // 100000 / 128 + 2 tiles of 128 keys, of 8 heads
  const int64_t tile_bytes = 8 * ImageSlotBytes(spec, *plan.images);
  EXPECT_EQ(plan.workspace_bytes, 128 + 783 * tile_bytes);
  const auto granted = [&](int64_t bytes) {
    const ExtendPlan of_grant = ChooseExtend(engine, spec, sizes, bytes);
    EXPECT_LE(of_grant.workspace_bytes, std::max<int64_t>(bytes, 0));
    EXPECT_EQ(of_grant.images.has_value(), of_grant.workspace_bytes > 0);
    return of_grant.workspace_bytes;
  };
  EXPECT_EQ(granted(plan.workspace_bytes), plan.workspace_bytes);
  // A byte less takes two passes; 49 tiles are a sixteenth of 783, 48 are not.
  const int64_t passed = 8 * (8 + 2) * PassedStateBytes(spec, *plan.images);
  EXPECT_EQ(
      granted(plan.workspace_bytes - 1),
      128 + passed +
          (plan.workspace_bytes - 129 - passed) / tile_bytes * tile_bytes);
  EXPECT_EQ(granted(128 + passed + 49 * tile_bytes),
            128 + passed + 49 * tile_bytes);
  EXPECT_EQ(granted(128 + passed + 49 * tile_bytes - 1), 0);
  EXPECT_EQ(granted(0), 0);
  EXPECT_EQ(granted(-1), 0);
  sizes.total_q = 255;
  EXPECT_EQ(granted(kMany), 0);
  sizes.total_q = 256;
  for (const char* text : {"extend/e4m3_row/d256/g4/page16/bf16",
                           "extend/e4m3_row/d128/g4/page16/bf16/mask=custom"}) {
    EXPECT_FALSE(
        ChooseExtend(engine, *ParseSpec(text), sizes, kMany).images.has_value())
        << text;
  }
}

TEST(Images, RefuseALaunchWithoutAWorkspace) {
  Bench bench(Generated(Options("e4m3_row", {5}, {100})), 0);
  const auto kernel = OnImages(bench);
  if (absl::IsResourceExhausted(kernel.status())) {
    GTEST_SKIP() << "extend on images did not run: " << kernel.status();
  }
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  if (ListingSpecs()) return;
  const ExtendParams params = {bench.target->AttentionArguments(),
                               bench.problem.num_q_heads};
  const absl::Status status = RunExtend(**kernel, params, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::HasSubstr("allocate the bytes that the size query gives"));
}

TEST(Warpgroups, SayWhatTheyDoNotTake) {
  const GpuTarget& sm_90 = **FindTarget("sm_90");
  const GpuTarget& sm_89 = **FindTarget("sm_89");
  const auto refusal = [](const char* text, const GpuTarget& gpu) {
    return std::string(
        SelectWarpgroupTile(*ParseSpec(text), gpu).status().message());
  };
  EXPECT_EQ(refusal("extend/e4m3_row/d128/g4/page16/bf16", sm_90), "");
  EXPECT_EQ(refusal("extend/e4m3_row/d128/g4/page16/bf16", sm_89),
            "extend/e4m3_row/d128/g4/page16/bf16 on sm_89: no tile of "
            "warpgroups fits; the spec needs products of warpgroups, which "
            "sm_89 does not have; take the tile that the selector chooses");
  for (const char* text : {"extend/mxfp8/d128/g4/page16/bf16",
                           "extend/e4m3_row/d80/g4/page16/bf16",
                           "extend/e4m3_row/d128/g4/page16/bf16/sparse=16"}) {
    EXPECT_EQ(
        refusal(text, sm_90),
        absl::StrCat(text,
                     " on sm_90: no tile of warpgroups fits; the spec is none "
                     "for warpgroups, which take head_dims of 64, 128 or "
                     "192, no ue8m0 block scales, no row minima and no "
                     "selected blocks; "
                     "take the tile that the selector chooses"));
  }
}

}  // namespace
}  // namespace kvforge
