// The ladder of extend tiles that the requirements ask for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/tile/tile_selector.h"
#include "tests/tile/tile_specs.h"

namespace kvforge {
namespace {

// block_m * block_n that the requirements ask for; 0 = their ladder refuses.
int RequiredArea(const KernelSpec& spec, int limit) {
  const int d = std::max(spec.head_dim, spec.v_head_dim);
  const auto fits = [&](int m, int n) {
    const double k_bytes = spec.k_format->code_bits / 8.0;
    const double v_bytes = spec.v_format->code_bits / 8.0;
    return (2 * m + n * k_bytes + n * v_bytes) * d <= 0.8 * limit;
  };
  if (d <= 256) {
    if (fits(128, 64)) return 128 * 64;
    if (fits(64, 64)) return 64 * 64;
    if (fits(64, 32)) return 64 * 32;
  }
  if (fits(32, 64)) return 32 * 64;
  if (d <= 384 && fits(32, 32)) return 32 * 32;
  return fits(16, 16) ? 16 * 16 : 0;
}

// A tile of at least `area` that fits; "" if there is none.
std::string LaunchableTileOf(int area, const KernelSpec& spec,
                             const GpuTarget& target) {
  for (const TileCandidate& candidate : TileLadder(spec, target)) {
    const Tile& tile = candidate.tile;
    if (tile.block_m * tile.block_n >= area && candidate.refused.empty()) {
      return tile.Text();
    }
  }
  return "";
}

TEST(ExtendTile, EachFormatHeadDimAndGpuReachesTheLadder) {
  int checked = 0;
  for (const GpuTarget& target : Targets()) {
    for (const KvFormat& k : kFormats) {
      for (const KvFormat& v : kFormats) {
        for (int head_dim : kHeadDims) {
          for (int v_head_dim : {head_dim, 64, 128, 512}) {
            const KernelSpec spec = Extend(k, v, head_dim, v_head_dim);
            const int area = RequiredArea(spec, target.shared_bytes_opt_in);
            const absl::StatusOr<TileCandidate> chosen =
                SelectTile(spec, target);
            ASSERT_TRUE(chosen.ok()) << target.name << chosen.status();
            const Tile& tile = chosen->tile;
            // A query scaled by channel is two operands, which the ladder does
            // not count: what it asks for must then be proven not to fit.
            const bool counted = k.given_scale != GivenScale::kChannel;
            if (counted || tile.block_m * tile.block_n >= area) {
              EXPECT_GE(tile.block_m * tile.block_n, area)
                  << spec.Text() << " " << target.name << " " << tile.Text();
            } else {
              EXPECT_EQ(LaunchableTileOf(area, spec, target), "")
                  << spec.Text() << " " << target.name << " " << tile.Text();
            }
            EXPECT_TRUE(CheckTile(spec, tile, target).ok())
                << CheckTile(spec, tile, target);
            ++checked;
          }
        }
      }
    }
  }
  EXPECT_EQ(checked, 11 * 169 * 14 * 4);
}

// The rungs worked out by hand: (2 m + 2 n * bytes) * head_dim against 0.8 of
// the limit. A multiple of head_dim, 1 and 2 bytes an element:
//   128x64 384, 512   64x64 256, 384   64x32 192, 256   32x64 192, 320
//   32x32  128, 192   16x16  64,  96
// 0.8 of 64, 99, 163, 227 KiB: 52428, 81100, 133529, 185958 bytes.
struct LadderRow {
  int element_bytes;
  int limit_kib;
  std::array<int, 8> areas;  // at head_dim 64, 80, 96, 112, 128, 192, 256, 512
};
constexpr std::array<int, 8> kLadderHeadDims = {64,  80,  96,  112,
                                                128, 192, 256, 512};
constexpr int k128x64 = 128 * 64, k64x64 = 64 * 64, k64x32 = 64 * 32,
              k32x64 = 32 * 64, k32x32 = 32 * 32, k16x16 = 16 * 16;

class LadderOfRequirements : public ::testing::TestWithParam<LadderRow> {};

TEST_P(LadderOfRequirements, AnalyticChoiceIsNoSmaller) {
  const LadderRow& row = GetParam();
  GpuTarget gpu = Gpu("sm_90");
  gpu.shared_bytes_opt_in = row.limit_kib * kKiB;
  gpu.shared_bytes_per_sm = gpu.shared_bytes_opt_in + kKiB;
  int checked = 0;
  for (const KvFormat& format : kFormats) {
    if (format.code_bits != 8 * row.element_bytes) continue;
    for (size_t i = 0; i < kLadderHeadDims.size(); ++i) {
      const int head_dim = kLadderHeadDims[i];
      if (format.block > 0 && head_dim % format.block != 0) continue;
      const KernelSpec spec = Extend(format, format, head_dim, head_dim);
      const int area = row.areas[i];
      EXPECT_EQ(area, RequiredArea(spec, gpu.shared_bytes_opt_in))
          << spec.Text() << ": the test's own two counts differ";
      const absl::StatusOr<TileCandidate> choice = SelectTile(spec, gpu);
      ASSERT_TRUE(choice.ok()) << choice.status();
      EXPECT_LE(choice->shared_bytes, gpu.shared_bytes_opt_in);
      if (choice->tile.block_m * choice->tile.block_n < area) {
        // Only where the exact model proves that none of its size can launch.
        EXPECT_EQ(LaunchableTileOf(area, spec, gpu), "")
            << spec.Text() << " in " << row.limit_kib << " KiB took "
            << choice->tile.Text();
        EXPECT_EQ(format.given_scale, GivenScale::kChannel)
            << spec.Text() << ": " << choice->tile.Text();
      }
      ++checked;
    }
  }
  EXPECT_GE(checked, 16);
}

INSTANTIATE_TEST_SUITE_P(
    Limits, LadderOfRequirements,
    ::testing::Values(LadderRow{1,
                                64,
                                {k128x64, k128x64, k128x64, k128x64, k128x64,
                                 k64x64, k64x32, k16x16}},
                      LadderRow{1,
                                99,
                                {k128x64, k128x64, k128x64, k128x64, k128x64,
                                 k128x64, k64x64, k16x16}},
                      LadderRow{1,
                                163,
                                {k128x64, k128x64, k128x64, k128x64, k128x64,
                                 k128x64, k128x64, k32x64}},
                      LadderRow{1,
                                227,
                                {k128x64, k128x64, k128x64, k128x64, k128x64,
                                 k128x64, k128x64, k32x64}},
                      LadderRow{2,
                                64,
                                {k128x64, k128x64, k128x64, k64x64, k64x64,
                                 k64x32, k32x32, k16x16}},
                      LadderRow{2,
                                99,
                                {k128x64, k128x64, k128x64, k128x64, k128x64,
                                 k64x64, k64x32, k16x16}},
                      LadderRow{2,
                                163,
                                {k128x64, k128x64, k128x64, k128x64, k128x64,
                                 k128x64, k128x64, k16x16}},
                      LadderRow{2,
                                227,
                                {k128x64, k128x64, k128x64, k128x64, k128x64,
                                 k128x64, k128x64, k32x64}}));

TEST(ExtendTile, OneByteCacheOf256OnSmallGpusTakesMoreThanATwoByteOne) {
  for (const char* gpu : {"sm_86", "sm_89", "sm_120", "sm_121"}) {
    ASSERT_EQ(Gpu(gpu).shared_bytes_opt_in, 99 * kKiB);
    const auto area = [gpu](absl::string_view format) {
      const absl::StatusOr<TileCandidate> choice = SelectTile(
          Spec(absl::StrCat("extend/", format, "/d256/g4/page16/bf16")),
          Gpu(gpu));
      EXPECT_TRUE(choice.ok()) << choice.status();
      return choice.ok() ? choice->tile.block_m * choice->tile.block_n : 0;
    };
    for (const char* one_byte : {"e4m3_tensor", "e4m3_row"}) {
      EXPECT_GT(area(one_byte), area("bf16")) << one_byte << " " << gpu;
      EXPECT_GT(area(one_byte), area("f16")) << one_byte << " " << gpu;
    }
  }
}

TEST(ExtendTile, TwoStagesWinOverOne) {
  for (const GpuTarget& target : Targets()) {
    for (const KvFormat& format : kFormats) {
      for (int head_dim : kHeadDims) {
        const KernelSpec spec = Extend(format, format, head_dim, head_dim);
        const absl::StatusOr<TileCandidate> chosen = SelectTile(spec, target);
        ASSERT_TRUE(chosen.ok()) << chosen.status();
        if (chosen->tile.stages >= 2) continue;
        const int area = RequiredArea(spec, target.shared_bytes_opt_in);
        for (const TileCandidate& other : TileLadder(spec, target)) {
          if (other.tile.stages == 2 &&
              other.tile.block_m >= std::min(chosen->tile.block_m, 64) &&
              other.tile.block_m * other.tile.block_n >= area) {
            EXPECT_FALSE(other.refused.empty())
                << spec.Text() << " " << target.name << " " << other.tile.Text()
                << " beats " << chosen->tile.Text();
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvforge
