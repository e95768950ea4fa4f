// What the compiled kernels of every GPU hold, without a GPU: the shared bytes
// that the template exports are those of the model, and no kernel spills but
// those known to. A kernel that cannot be has a refusal with numbers.
//
//   compiled_facts_test                    a sample of 400 points
//   compiled_facts_test --points 1000 --seed 7
//   compiled_facts_test --points all       the whole grid; scripts/compile_all
//   compiled_facts_test --json FILE        also writes what was found
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/tile/memory_model.h"
#include "compiler/tile/tile_selector.h"
#include "runtime/base/file.h"
#include "tests/kernels/compiled_points.h"
#include "tests/kernels/test_engine.h"
#include "tools/columns.h"

namespace kvforge {
namespace {

constexpr size_t kGridPoints = (13u * 4 + 1) * 8 * 10;
constexpr size_t kFixedPoints = (10u + 3) * 10;  // features, known spills

// What is known of a point.
struct PointFacts {
  std::string refused;      // why there is no such kernel
  std::string wrong;        // what is not as it should be
  std::string unavailable;  // why it could not be compiled here
  std::string tile;
  int model_bytes = 0;
  LaunchFacts compiled;
};

// Whether a refusal says more numbers than those of the SPEC and the GPU.
bool HasNumbers(const CompiledPoint& point, absl::string_view message) {
  const std::string rest =
      absl::StrReplaceAll(message, {{point.spec, ""}, {point.gpu->name, ""}});
  return std::any_of(rest.begin(), rest.end(), absl::ascii_isdigit);
}

void Refuse(const CompiledPoint& point, const absl::Status& status,
            PointFacts& facts) {
  const std::string message(status.message());
  if (!absl::IsInvalidArgument(status) && !absl::IsUnimplemented(status) &&
      !absl::IsResourceExhausted(status)) {
    facts.wrong = status.ToString();
  } else if (!HasNumbers(point, message)) {
    facts.wrong = absl::StrCat("refused without numbers: ", message);
  }
  facts.refused = message;
}

// The model's answer: a tile that fits, or a refusal.
PointFacts Predict(const CompiledPoint& point, const GpuTarget& gpu) {
  PointFacts facts;
  const absl::StatusOr<KernelSpec> spec = ParseSpec(point.spec);
  if (!spec.ok()) {
    Refuse(point, spec.status(), facts);
    return facts;
  }
  const absl::StatusOr<TileCandidate> choice = SelectTile(*spec, gpu);
  if (!choice.ok()) {
    Refuse(point, choice.status(), facts);
    return facts;
  }
  facts.tile = choice->tile.Text();
  facts.model_bytes = SharedBytes(*spec, choice->tile);
  const absl::Status fits = CheckTile(*spec, choice->tile, gpu);
  if (!fits.ok()) facts.wrong = fits.ToString();
  if (facts.model_bytes > gpu.shared_bytes_opt_in) {
    facts.wrong =
        absl::StrCat(facts.model_bytes, " shared bytes of a block on a GPU of ",
                     gpu.shared_bytes_opt_in);
  }
  return facts;
}

PointFacts CompilePoint(const CompiledPoint& point) {
  PointFacts facts = Predict(point, *point.gpu);
  if (!facts.refused.empty() || !facts.wrong.empty()) return facts;
  const auto entry =
      TestEngine().Compile(*ParseSpec(point.spec), *point.gpu, "cuda");
  if (absl::IsUnavailable(entry.status())) {
    facts.unavailable = std::string(entry.status().message());
    return facts;
  }
  if (!entry.ok()) {
    facts.wrong = entry.status().ToString();
    return facts;
  }
  const LaunchFacts& compiled = facts.compiled = (*entry)->facts;
  if (compiled.dynamic_shared_bytes != facts.model_bytes ||
      compiled.static_shared_bytes != 0) {
    facts.wrong = absl::StrCat(
        compiled.dynamic_shared_bytes, " + ", compiled.static_shared_bytes,
        " shared bytes, the model says ", facts.model_bytes);
  }
  const int known = KnownSpillBytes(point.spec);
  if (compiled.spill_bytes > known ||
      (known == 0 && compiled.local_bytes != 0)) {
    absl::StrAppend(&facts.wrong, facts.wrong.empty() ? "" : "; ",
                    compiled.spill_bytes, " bytes spilled, ",
                    compiled.local_bytes, " of local memory");
  }
  return facts;
}

// What a kernel in a tile of warpgroups is: bytes as the model says, registers
// as the launch leaves them, no spills. kUnavailable where nothing compiles.
absl::Status ExpectWarpgroupFacts(const KernelSpec& spec, const Tile& tile,
                                  const GpuTarget& gpu) {
  const auto entry = TestEngine().Compile(spec, tile, gpu, "cuda");
  if (absl::IsUnavailable(entry.status())) return entry.status();
  const std::string name = absl::StrCat(spec.Text(), " ", tile.Text());
  EXPECT_TRUE(entry.ok()) << name << ": " << entry.status();
  if (!entry.ok()) return absl::OkStatus();
  const LaunchFacts& facts = (*entry)->facts;
  EXPECT_EQ(facts.dynamic_shared_bytes, SharedBytes(spec, tile)) << name;
  EXPECT_EQ(facts.block_threads, 384) << name;
  EXPECT_EQ(facts.registers, 65536 / 384 / 8 * 8) << name;
  EXPECT_EQ(facts.local_bytes, 0) << name;
  return absl::OkStatus();
}

// Every kernel that has a tile of warpgroups.
TEST(CompiledFacts, TilesOfWarpgroupsMeetTheModelAndDoNotSpill) {
  const GpuTarget& gpu = **FindTarget("sm_90");
  int compiled = 0;
  for (const KvFormat& format : kFormats) {
    for (const int head_dim : {64, 128, 192}) {
      const auto spec = ParseSpec(absl::StrCat("extend/", format.name, "/d",
                                               head_dim, "/g4/page16/bf16"));
      if (!spec.ok()) continue;
      for (const bool images : {false, true}) {
        const auto choice = SelectWarpgroupTile(*spec, gpu, images);
        if (!choice.ok()) continue;
        if (const absl::Status compiled_here =
                ExpectWarpgroupFacts(*spec, choice->tile, gpu);
            !compiled_here.ok()) {
          GTEST_SKIP() << "tiles of warpgroups were not compiled: "
                       << compiled_here;
        }
        ++compiled;
      }
    }
  }
  // Ten formats; of images one less, whose scales are a channel's.
  EXPECT_EQ(compiled, 10 * 3 + 9 * 3);
}

// What features take of the registers decides the tile: one a kernel that is
// near its limit, by format, head_dim and feature.
TEST(CompiledFacts, FeaturesOnWarpgroupsDoNotSpill) {
  const GpuTarget& gpu = **FindTarget("sm_90");
  for (const char* text : {
           "bf16/d128/g4/page16/bf16/alibi=1/softcap=30/window=99",
           "bf16/d64/g4/page16/bf16/alibi=1/mask=custom",
           "e4m3_channel/d128/g4/page16/bf16/alibi=1",
           "e4m3_row/d128/g4/page16/bf16/alibi=1",
           "e4m3_row/d128/g4/page16/bf16/alibi=1/mask=custom/sinks=1/"
           "softcap=30/window=4096",
           "e4m3_row/d128/g4/page16/bf16/mask=custom",
           "e4m3_row/d128/g4/page16/bf16/softcap=30",
           "e4m3_row/d128/g4/page16/bf16/window=4096",
           "e4m3_row/d192/g4/page16/bf16/softcap=30/window=4096",
           "e4m3_row/d64/g4/page16/bf16/alibi=1/softcap=30/window=4096",
           "e4m3_row/d64/g4/page16/bf16/mask=custom",
           "e4m3_tensor/d128/g4/page16/bf16/softcap=30/window=4096",
           "e4m3_tensor/d64/g4/page16/bf16/mask=custom",
           "nvfp4/d128/g4/page16/bf16/alibi=1",
           "nvfp4_row/d128/g4/page16/bf16/mask=custom",
           "nvfp4_row/d64/g4/page16/bf16/alibi=1",
       }) {
    const auto spec = ParseSpec(absl::StrCat("extend/", text));
    ASSERT_TRUE(spec.ok()) << spec.status();
    for (const bool images : {false, true}) {
      const auto choice = SelectWarpgroupTile(*spec, gpu, images);
      if (images && !TakesImages(*spec)) {
        EXPECT_FALSE(choice.ok()) << text;
        continue;
      }
      ASSERT_TRUE(choice.ok()) << choice.status();
      if (const absl::Status compiled =
              ExpectWarpgroupFacts(*spec, choice->tile, gpu);
          !compiled.ok()) {
        GTEST_SKIP() << "features on warpgroups were not compiled: "
                     << compiled;
      }
    }
  }
}

// Likewise of every kernel with compute=fp8, in every tile.
TEST(CompiledFacts, Fp8MeetsTheModelAndDoesNotSpill) {
  const GpuTarget& gpu = **FindTarget("sm_90");
  for (const char* features :
       {"/e4m3_row/d128/g4/page16/bf16/compute=fp8",
        "/e4m3_head/d128/g7/page1/f16/compute=fp8/softcap=30/sinks=1/window=99",
        "/e4m3_tensor/d128/g1/page48/f32/alibi=1/compute=fp8/mask=custom",
        "/e4m3_row/d128/g8/page64/bf16/alibi=1/compute=fp8/mask=custom/out=f32/"
        "softcap=30/sinks=1/v=e4m3_tensor/window=99",
        "/e4m3_tensor/d128/g4/page16/bf16/compute=fp8/mask=full/v=e4m3_row"}) {
    const absl::StatusOr<KernelSpec> spec =
        ParseSpec(absl::StrCat("extend", features));
    ASSERT_TRUE(spec.ok()) << spec.status();
    for (const TileCandidate& candidate : TileLadder(*spec, gpu)) {
      ASSERT_EQ(candidate.refused, "") << features;
      EXPECT_EQ(candidate.shared_bytes, SharedBytes(*spec, candidate.tile));
      if (const absl::Status compiled =
              ExpectWarpgroupFacts(*spec, candidate.tile, gpu);
          !compiled.ok()) {
        GTEST_SKIP() << "compute=fp8 was not compiled: " << compiled;
      }
    }
  }
}

std::vector<PointFacts> CompilePoints(
    const std::vector<CompiledPoint>& points) {
  std::vector<PointFacts> facts(points.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < points.size(); i = next++) {
      facts[i] = CompilePoint(points[i]);
      if (!facts[i].unavailable.empty()) return;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency());
       ++i) {
    threads.emplace_back(work);
  }
  for (std::thread& thread : threads) thread.join();
  return facts;
}

// A line a GPU.
std::string Table(const std::vector<CompiledPoint>& points,
                  const std::vector<PointFacts>& facts) {
  struct Counts {
    int compiled = 0, refused = 0, spilled = 0, wrong = 0;
    int most_registers = 0, most_shared_bytes = 0;
  };
  std::map<int, Counts> counts;  // by compute capability
  for (size_t i = 0; i < points.size(); ++i) {
    Counts& row = counts[points[i].gpu->compute_capability];
    const LaunchFacts& compiled = facts[i].compiled;
    row.refused += !facts[i].refused.empty();
    row.compiled += compiled.block_threads > 0;
    row.spilled += compiled.spill_bytes > 0;
    row.wrong += !facts[i].wrong.empty();
    row.most_registers = std::max(row.most_registers, compiled.registers);
    row.most_shared_bytes =
        std::max(row.most_shared_bytes, compiled.dynamic_shared_bytes);
  }
  std::vector<std::vector<std::string>> rows = {
      {"GPU", "compiled", "refused", "spill", "wrong", "most registers",
       "most shared bytes"}};
  for (const auto& [capability, row] : counts) {
    rows.push_back({absl::StrCat("sm_", capability), absl::StrCat(row.compiled),
                    absl::StrCat(row.refused), absl::StrCat(row.spilled),
                    absl::StrCat(row.wrong), absl::StrCat(row.most_registers),
                    absl::StrCat(row.most_shared_bytes)});
  }
  return Columns(rows);
}

absl::Status WriteJson(const std::string& path,
                       const std::vector<CompiledPoint>& points,
                       const std::vector<PointFacts>& facts) {
  nlohmann::json rows = nlohmann::json::array();
  for (size_t i = 0; i < points.size(); ++i) {
    rows.push_back({{"spec", points[i].spec},
                    {"gpu", std::string(points[i].gpu->name)},
                    {"tile", facts[i].tile},
                    {"refused", facts[i].refused},
                    {"wrong", facts[i].wrong},
                    {"model_bytes", facts[i].model_bytes},
                    {"shared_bytes", facts[i].compiled.dynamic_shared_bytes},
                    {"registers", facts[i].compiled.registers},
                    {"spill_bytes", facts[i].compiled.spill_bytes},
                    {"local_bytes", facts[i].compiled.local_bytes}});
  }
  return WriteFileAtomically(
      path, rows.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::vector<std::string> Wrong(const std::vector<CompiledPoint>& points,
                               const std::vector<PointFacts>& facts) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < points.size(); ++i) {
    if (facts[i].wrong.empty()) continue;
    lines.push_back(absl::StrCat(points[i].spec, " for ", points[i].gpu->name,
                                 ", tile ", facts[i].tile, ": ",
                                 facts[i].wrong));
  }
  return lines;
}

TEST(CompiledFacts, ModelHasATileThatFitsOrARefusalForEachPoint) {
  std::vector<CompiledPoint> points = AllPoints();
  // The three known spills are in the grid as well.
  ASSERT_EQ(points.size(), kGridPoints + 10 * 10);
  std::vector<PointFacts> facts;
  for (const CompiledPoint& point : points) {
    facts.push_back(Predict(point, *point.gpu));
  }
  // And on 64 KiB a block, which no GPU that is served has.
  const GpuTarget* small = &kTargets[0];
  ASSERT_EQ(small->shared_bytes_opt_in, 64 * kKiB);
  for (const CompiledPoint& point : AllPoints()) {
    if (point.gpu->compute_capability != 80) continue;
    points.push_back({point.spec, small});
    facts.push_back(Predict(points.back(), *small));
  }
  EXPECT_THAT(Wrong(points, facts), ::testing::IsEmpty());
  // Blocks of 32 channels: mxfp8 and mxfp4 at head_dim 80 and 112.
  const auto refused =
      std::count_if(facts.begin(), facts.end(),
                    [](const PointFacts& f) { return !f.refused.empty(); });
  EXPECT_EQ(refused, 2 * 2 * 4 * 11);
}

TEST(CompiledFacts, SampleHasEachFixedPointAndDependsOnTheSeedOnly) {
  const auto names = [](const std::vector<CompiledPoint>& points) {
    std::vector<std::string> texts;
    for (const CompiledPoint& point : points) {
      texts.push_back(absl::StrCat(point.spec, " ", point.gpu->name));
    }
    std::sort(texts.begin(), texts.end());
    return texts;
  };
  const std::vector<std::string> sample = names(SamplePoints(400, 1));
  ASSERT_EQ(sample.size(), 400u);
  EXPECT_EQ(std::adjacent_find(sample.begin(), sample.end()), sample.end());
  EXPECT_EQ(sample, names(SamplePoints(400, 1)));
  EXPECT_NE(sample, names(SamplePoints(400, 2)));
  const std::vector<std::string> fixed = names(FixedPoints());
  ASSERT_EQ(fixed.size(), kFixedPoints);
  EXPECT_TRUE(
      std::includes(sample.begin(), sample.end(), fixed.begin(), fixed.end()));
  EXPECT_EQ(names(SamplePoints(1 << 20, 1)), names(AllPoints()));
}

TEST(CompiledFacts, SharedBytesMeetTheModelAndOnlyKnownKernelsSpill) {
  const std::vector<CompiledPoint> points =
      Flags().points == 0 ? AllPoints()
                          : SamplePoints(Flags().points, Flags().seed);
  std::printf("%zu of %zu points, seed %llu\n", points.size(),
              AllPoints().size(),
              static_cast<unsigned long long>(Flags().seed));
  const std::vector<PointFacts> facts = CompilePoints(points);
  for (const PointFacts& fact : facts) {
    if (fact.unavailable.empty()) continue;
    GTEST_SKIP() << "the compiled facts of " << points.size()
                 << " kernels were not checked: " << fact.unavailable;
  }
  std::printf("%s", Table(points, facts).c_str());
  if (!Flags().json.empty()) {
    KVFORGE_EXPECT_OK(WriteJson(Flags().json, points, facts));
  }
  EXPECT_THAT(Wrong(points, facts), ::testing::IsEmpty())
      << "repeat with --points " << points.size() << " --seed " << Flags().seed;
}

}  // namespace
}  // namespace kvforge
