#include "compiler/tile/tile_selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compiler/tile/memory_model.h"
#include "tests/tile/tile_specs.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

struct Choice {
  const char* spec;
  const char* gpu;
  const char* tile;
};

class Chosen : public ::testing::TestWithParam<Choice> {};

TEST_P(Chosen, IsTheFastestThatFits) {
  const absl::StatusOr<TileCandidate> chosen =
      SelectTile(Spec(GetParam().spec), Gpu(GetParam().gpu));
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->tile.Text(), GetParam().tile) << GetParam().spec;
  EXPECT_EQ(chosen->shared_bytes,
            SharedBytes(Spec(GetParam().spec), chosen->tile));
  EXPECT_TRUE(chosen->refused.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Extend, Chosen,
    ::testing::Values(
        Choice{"extend/e4m3_row/d128/g4/page16/bf16", "sm_80", "128x64/2/4"},
        // 2 stages of 32768 and Q's 32768: 98304 of 101376
        Choice{"extend/bf16/d128/g4/page16/bf16", "sm_86", "128x64/2/4"},
        Choice{"extend/bf16/d128/g4/page16/bf16", "sm_90",
               "128x64/4/8/warpgroups"},
        Choice{"extend/e4m3_row/d128/g4/page16/bf16", "sm_90",
               "128x128/4/8/warpgroups"},
        // Q 32768 + 2 * 33280 = 99328 of 101376; 128x64 has room for one stage
        Choice{"extend/e4m3_row/d256/g4/page16/bf16", "sm_89", "64x64/2/4"},
        Choice{"extend/bf16/d256/g4/page16/bf16", "sm_86", "64x32/2/4"},
        Choice{"extend/bf16/d256/g4/page16/bf16", "sm_90", "128x64/2/8"},
        Choice{"extend/e4m3_row/d512/g4/page16/bf16", "sm_86", "32x32/2/4"},
        Choice{"extend/e4m3_row/d512/g4/page16/bf16", "sm_90", "32x64/2/4"},
        Choice{"extend/bf16/d512/g4/page16/bf16", "sm_120", "32x16/2/4"}));

INSTANTIATE_TEST_SUITE_P(
    Decode, Chosen,
    ::testing::Values(
        // 4 stages of 8 warps: 153728 of 232448
        Choice{"decode/e4m3_row/d128/g4/page16/bf16", "sm_90", "8x128/4/8"},
        // 3 stages of 8 warps pass 101376, and so do two blocks of 4 warps
        Choice{"decode/e4m3_row/d128/g4/page16/bf16", "sm_86", "8x64/4/4"},
        Choice{"decode/e4m3_row/d128/g8/page16/bf16", "sm_90", "8x128/4/8"},
        // 8 warps that compute and 4 that copy leave 168 registers
        Choice{"decode/e4m3_row/d128/g9/page16/bf16", "sm_90", "16x64/4/4"},
        Choice{"decode/e4m3_row/d128/g4/page16/bf16/q_max=4", "sm_90",
               "16x64/4/4"},
        // one stage of 4 warps takes 67584: two blocks leave one stage each
        Choice{"decode/bf16/d256/g4/page16/bf16", "sm_90", "8x64/3/4"},
        // 16 rows of 512 columns take 348 registers. q takes 8192 bytes, 2
        // stages of a warp 66560: 4 warps 274432, 2 warps 141312, 1 warp 74752
        Choice{"decode/bf16/d512/g16/page16/bf16", "sm_80", "8x32/2/2"},
        Choice{"decode/bf16/d512/g16/page16/bf16", "sm_86", "8x16/2/1"}));

INSTANTIATE_TEST_SUITE_P(
    Others, Chosen,
    ::testing::Values(
        Choice{"store/e4m3_row/d128/g1/page16/bf16", "sm_80", "16x0/1/4"},
        Choice{"store/e4m3_row/d64/g1/page16/bf16", "sm_80", "32x0/1/4"},
        Choice{"store/e4m3_row/d80/g1/page16/bf16", "sm_80", "16x0/1/4"},
        Choice{"store/e4m3_row/d512/g1/page16/bf16", "sm_80", "4x0/1/4"},
        Choice{"merge/d256/bf16", "sm_80", "4x0/1/4"}));

TEST(DecodeTile, EachFormatHeadDimAndGpuHasOneWithTwoStages) {
  for (const GpuTarget& target : Targets()) {
    for (const KvFormat& format : kFormats) {
      for (int head_dim : kHeadDims) {
        for (int group : {1, 8, 9, 128}) {
          KernelSpec spec = Extend(format, format, head_dim, head_dim);
          spec.kernel = KernelKind::kDecode;
          spec.group = group;
          const absl::StatusOr<TileCandidate> chosen = SelectTile(spec, target);
          ASSERT_TRUE(chosen.ok()) << target.name << chosen.status();
          EXPECT_TRUE(CheckTile(spec, chosen->tile, target).ok());
          EXPECT_GE(chosen->tile.stages, 1);
          // 16-bit rows of 512 in 64 KiB: one stage of one warp is 32768.
          const bool tight = head_dim == 512 && format.code_bits == 16 &&
                             target.shared_bytes_opt_in == 64 * kKiB;
          EXPECT_EQ(chosen->tile.stages == 1, tight)
              << spec.Text() << " " << target.name << " "
              << chosen->tile.Text();
          // 16 rows of 224 columns take 168 registers for q and the output, 92
          // for the rest: more than there are. A query of two operands, as
          // scales of channels make it, is in shared memory: 256 columns then
          // take 128.
          const int most_columns =
              format.given_scale == GivenScale::kChannel ? 256 : 208;
          EXPECT_EQ(chosen->tile.block_m,
                    group > 8 && head_dim <= most_columns ? 16 : 8)
              << spec.Text() << " " << target.name;
        }
      }
    }
  }
}

TEST(TileLadder, EachRefusalHasItsNumbers) {
  const std::vector<TileCandidate> ladder =
      TileLadder(Spec("extend/bf16/d256/g4/page16/bf16"), Gpu("sm_86"));
  ASSERT_FALSE(ladder.empty());
  EXPECT_EQ(ladder[0].tile.Text(), "128x64/2/8");
  EXPECT_EQ(ladder[0].refused,
            "needs 196608 bytes of shared memory, sm_86 has 101376 for a "
            "block");
}

TEST(TileLadder, RegistersRefuseToo) {
  GpuTarget half = Gpu("sm_90");
  half.registers_per_sm = 32768;
  const std::vector<TileCandidate> ladder =
      TileLadder(Spec("extend/bf16/d128/g4/page16/bf16"), half);
  // 8 warps of 16 rows: 64 + 32 + 56 = 152 registers, 32768 / 256 = 128.
  const auto found = std::find_if(
      ladder.begin(), ladder.end(),
      [](const TileCandidate& c) { return c.tile.Text() == "128x64/2/8"; });
  ASSERT_NE(found, ladder.end());
  EXPECT_EQ(found->refused,
            "needs 152 registers a thread, sm_90 has 128 for 8 warps");
}

TEST(SelectTile, NothingFitsNamesTheSmallestTile) {
  GpuTarget tiny = Gpu("sm_86");
  tiny.shared_bytes_opt_in = 40000;
  // 16x16/1: Q 16 * 1024 + 16 * 2 * 1024 = 49152.
  const absl::Status status =
      SelectTile(Spec("extend/bf16/d512/g4/page16/bf16"), tiny).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(status.message()),
            "extend/bf16/d512/g4/page16/bf16 on sm_86: no tile fits; the "
            "smallest, 16x16/1/2, needs 49152 bytes of shared memory, sm_86 "
            "has 40000 for a block; use a GPU with more shared memory, a "
            "smaller head_dim or a cache format with fewer bytes a row");
}

// Number 43 of docs/cases.md, decided from the model, before anything compiles:
// a tile that fits, or a refusal with the bytes there are.
TEST(Case43, WideHeadsFitLittleSharedMemoryOrAreRefusedWithNumbers) {
  GpuTarget small = Targets().back();
  ASSERT_EQ(small.shared_bytes_opt_in, 64 * kKiB);
  int fit = 0;
  for (const char* kernel : {"decode", "extend"}) {
    for (const auto& [shape, gpu] : {std::pair{"e4m3_row/d512", Gpu("sm_86")},
                                     {"e4m3_tensor/d512", Gpu("sm_86")},
                                     {"bf16/d512", Gpu("sm_86")},
                                     {"bf16/d256", small},
                                     {"f16/d256", small},
                                     {"bf16/d512", small}}) {
      const KernelSpec spec =
          Spec(absl::StrCat(kernel, "/", shape, "/g4/page16/bf16"));
      const absl::StatusOr<TileCandidate> choice = SelectTile(spec, gpu);
      if (choice.ok()) {
        ++fit;
        EXPECT_LE(choice->shared_bytes, gpu.shared_bytes_opt_in) << spec.Text();
        continue;
      }
      EXPECT_EQ(choice.status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(std::string(choice.status().message()),
                  HasSubstr(absl::StrCat(gpu.shared_bytes_opt_in)));
    }
  }
  EXPECT_GE(fit, 9);
  for (const char* kernel : {"decode", "extend"}) {
    EXPECT_TRUE(
        SelectTile(Spec(absl::StrCat(kernel, "/e4m3_row/d512/g4/page16/bf16")),
                   Gpu("sm_86"))
            .ok());
  }
}

TEST(CheckTile, ShapesTheKernelDoesNotHave) {
  struct Case {
    const char* spec;
    Tile tile;
    const char* rule;
  };
  for (const Case& c : {
           Case{"decode/bf16/d64/g1/page1/bf16",
                {12, 64, 2, 4},
                "block_m = 8 or 16, block_n = 16 * warps"},
           Case{"decode/bf16/d64/g1/page1/bf16",
                {8, 32, 2, 4},
                "block_n = 16 * warps"},
           Case{"decode/bf16/d64/g1/page1/bf16", {8, 0, 2, 0}, "1 to 16 warps"},
           Case{"extend/bf16/d64/g1/page1/bf16",
                {128, 64, 0, 4},
                "1 to 8 stages"},
           Case{"extend/bf16/d64/g1/page1/bf16",
                {128, 40, 2, 4},
                "block_n a multiple of 16"},
           Case{"extend/bf16/d64/g1/page1/bf16",
                {48, 64, 2, 4},
                "block_m = 16 or 32 times warps / 1"},
           Case{"extend/bf16/d512/g1/page1/bf16",
                {16, 16, 1, 1},
                "block_m = 16 or 32 times warps / 2"},
           Case{"store/bf16/d64/g1/page1/bf16",
                {16, 0, 1, 4},
                "block_m = 8 * warps"},
           Case{"merge/d64/bf16", {8, 0, 1, 4}, "block_m = warps"},
       }) {
    const absl::Status status = CheckTile(Spec(c.spec), c.tile, Gpu("sm_90"));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.rule));
  }
}

TEST(CheckTile, TilesThatDoNotFit) {
  const absl::Status status = CheckTile(Spec("extend/bf16/d256/g1/page1/bf16"),
                                        {128, 64, 2, 8}, Gpu("sm_86"));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("needs 196608 bytes of shared memory, sm_86 has "
                        "101376 for a block"));
}

TEST(CheckTile, DecodeHasAStageForEachProducerOfASide) {
  const KernelSpec spec = Spec("decode/e4m3_row/d128/g4/page16/bf16");
  EXPECT_TRUE(CheckTile(spec, {8, 128, 2, 8}, Gpu("sm_90")).ok());
  EXPECT_TRUE(CheckTile(spec, {8, 32, 1, 2}, Gpu("sm_90")).ok());
  for (const int warps : {4, 8}) {
    EXPECT_THAT(
        std::string(
            CheckTile(spec, {8, 16 * warps, 1, warps}, Gpu("sm_90")).message()),
        HasSubstr("2 stages or more from 4 warps up"));
  }
  // Nor is one on any GPU's ladder.
  for (const GpuTarget& gpu : kTargets) {
    for (const KvFormat& format : kFormats) {
      for (const int head_dim : {64, 256, 512}) {
        const auto parsed = ParseSpec(absl::StrCat(
            "decode/", format.name, "/d", head_dim, "/g4/page16/bf16"));
        if (!parsed.ok()) continue;
        for (const TileCandidate& rung : TileLadder(*parsed, gpu)) {
          EXPECT_GE(rung.tile.stages, DecodeSideProducers(rung.tile))
              << parsed->Text() << " " << gpu.name << " " << rung.tile.Text();
        }
      }
    }
  }
}

TEST(CheckTile, RefusesWarpgroupsByName) {
  const KernelSpec spec = Spec("extend/e4m3_row/d128/g4/page16/bf16");
  EXPECT_TRUE(CheckTile(spec, {128, 128, 4, 8, true}, Gpu("sm_90")).ok());
  EXPECT_THAT(
      std::string(
          CheckTile(spec, {128, 128, 4, 8, true}, Gpu("sm_100")).message()),
      HasSubstr("needs products of warpgroups, which sm_100 does not have"));
  EXPECT_THAT(
      std::string(
          CheckTile(spec, {128, 96, 4, 8, true}, Gpu("sm_90")).message()),
      HasSubstr("supported: block_m = 128, block_n = 64 or 128, 3 stages or "
                "more, 8 warps"));
  EXPECT_THAT(std::string(CheckTile(Spec("extend/int4_row/d128/g4/page16/bf16"),
                                    {128, 64, 4, 8, true}, Gpu("sm_90"))
                              .message()),
              HasSubstr("no row minima and no selected blocks"));
  // 128 / 2 + 128 / 2 + 128 / 4 + 40, and 24 for feeders of two kinds of scales
  EXPECT_THAT(
      std::string(CheckTile(Spec("extend/nvfp4_row/d128/g4/page16/bf16"),
                            {128, 128, 4, 8, true}, Gpu("sm_90"))
                      .message()),
      HasSubstr("needs 224 registers a thread, sm_90 has 216 for 8 warps"));
  EXPECT_THAT(std::string(CheckTile(Spec("decode/e4m3_row/d128/g4/page16/bf16"),
                                    {8, 64, 4, 4, true}, Gpu("sm_90"))
                              .message()),
              HasSubstr("works in no tile of warpgroups; extend does"));
}

TEST(CheckTile, RefusesImagesByName) {
  EXPECT_TRUE(CheckTile(Spec("extend/e4m3_row/d128/g4/page16/bf16"),
                        {128, 128, 4, 8, true, true}, Gpu("sm_90"))
                  .ok());
  EXPECT_THAT(
      std::string(
          CheckTile(Spec("extend/e4m3_row/d128/g4/page16/bf16/mask=custom"),
                    {128, 128, 4, 8, true, true}, Gpu("sm_90"))
              .message()),
      HasSubstr("is none for images, which take no custom mask"));
  EXPECT_THAT(
      std::string(
          CheckTile(Spec("extend/e4m3_row/d128/g4/page16/bf16/compute=fp8"),
                    {128, 128, 4, 8, true, true}, Gpu("sm_90"))
              .message()),
      HasSubstr("no channel scales and no compute=fp8"));
}

// A launch in a tile of images needs a workspace: no selector grants it.
TEST(SelectTile, NeverChoosesImages) {
  for (const char* text : {"extend/e4m3_row/d128/g4/page16/bf16",
                           "extend/int4_row/d192/g4/page16/bf16"}) {
    const KernelSpec spec = Spec(text);
    const absl::StatusOr<TileCandidate> chosen = SelectTile(spec, Gpu("sm_90"));
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_FALSE(chosen->tile.images) << chosen->tile.Text();
  }
}

TEST(OtherExtendTiles, AreOneOfEachOtherKind) {
  std::vector<std::string> names;
  for (const NamedTile& other : OtherExtendTiles(
           Spec("extend/e4m3_row/d128/g4/page16/bf16"), Gpu("sm_90"))) {
    names.emplace_back(other.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"warps", "images"}));
  EXPECT_TRUE(OtherExtendTiles(Spec("extend/e4m3_row/d128/g4/page16/bf16"),
                               Gpu("sm_89"))
                  .empty());
}

TEST(CheckTile, TakesFp8InItsOwnTilesOnly) {
  const KernelSpec spec =
      Spec("extend/e4m3_row/d128/g4/page16/bf16/compute=fp8");
  const absl::StatusOr<TileCandidate> chosen = SelectTile(spec, Gpu("sm_90"));
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->tile.Text(), "128x128/4/8/warpgroups");
  EXPECT_TRUE(CheckTile(spec, {128, 128, 2, 8, true}, Gpu("sm_90")).ok());
  for (const Tile& tile :
       {Tile{128, 64, 2, 8}, Tile{128, 64, 4, 8, true},
        Tile{128, 128, 5, 8, true}, Tile{128, 128, 1, 8, true}}) {
    EXPECT_THAT(
        std::string(CheckTile(spec, tile, Gpu("sm_90")).message()),
        HasSubstr("supported: with compute=fp8 128x128, 2 to 4 stages, 8 "
                  "warps, warpgroups"))
        << tile.Text();
  }
  EXPECT_EQ(SelectTile(spec, Gpu("sm_100")).status().message(),
            "extend/e4m3_row/d128/g4/page16/bf16/compute=fp8 on sm_100: "
            "compute=fp8 needs products of warpgroups of 8-bit floats; GPUs "
            "that have them: sm_90; leave compute out");
}

TEST(TileText, RoundTrips) {
  for (const Tile& tile : {Tile{128, 64, 2, 8}, Tile{16, 0, 1, 4},
                           Tile{8, 64, 3, 4}, Tile{128, 64, 4, 8, true}}) {
    const absl::StatusOr<Tile> parsed = ParseTile(tile.Text());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, tile);
  }
  EXPECT_EQ((Tile{128, 64, 2, 8}).Text(), "128x64/2/8");
  EXPECT_EQ((Tile{128, 64, 4, 8, true}).Text(), "128x64/4/8/warpgroups");
  EXPECT_EQ((Tile{128, 128, 4, 8, true, true}).Text(), "128x128/4/8/images");
  EXPECT_EQ(*ParseTile("128x128/4/8/images"),
            (Tile{128, 128, 4, 8, true, true}));
}

TEST(TileText, OtherTextIsRefused) {
  for (const char* text :
       {"", "128x64", "128x64/2", "128x64/2/8/1", "x64/2/8", "128x/2/8",
        "0x64/2/8", "128x64/0/8", "128x64/2/0", "-8x64/2/8", "128x64/2/8 ",
        "128x64/2/8/", "128x64/2/8/warpgroup", "128x64/2/8/warpgroups/",
        "128X64/2/8", "99999999999x64/2/8", "8192x64/2/8"}) {
    const absl::Status status = ParseTile(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("such as 128x64/2/8"));
  }
}

}  // namespace
}  // namespace kvforge
