// What `kvforge tune` measures: the candidates, and the checks that each passes
// before it is timed.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/tile/memory_model.h"
#include "compiler/tile/tile_selector.h"
#include "templates/embedded.h"
#include "tests/kernels/test_engine.h"
#include "tools/tune/attention_run.h"
#include "tools/tune/candidate_check.h"
#include "tools/tune/candidate_runner.h"
#include "tools/tune/candidates.h"
#include "tools/tune/red_zone.h"
#include "tools/tune/timing_problem.h"
#include "tools/tune/tune_report.h"

namespace kvforge::tune {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kDecode[] = "decode/e4m3_row/d64/g4/page16/bf16";
constexpr char kExtend[] = "extend/e4m3_row/d64/g4/page16/bf16";

KernelSpec Spec(const std::string& text) { return *ParseSpec(text); }

TEST(Tuner, CandidatesFitEachGpuAndHaveTheSelectorsTileAmongThem) {
  for (const GpuTarget& gpu : kTargets) {
    for (const char* text :
         {kDecode, kExtend, "decode/bf16/d512/g16/page16/bf16",
          "extend/bf16/d256/g4/page16/bf16", "extend/mxfp4/d512/g4/page16/f32",
          "decode/nvfp4_row/d128/g9/page16/bf16/q_max=4"}) {
      const KernelSpec spec = Spec(text);
      const auto tiles = TunedTiles(spec, gpu);
      ASSERT_TRUE(tiles.ok()) << tiles.status();
      std::set<std::string> texts;
      for (const Tile& tile : *tiles) {
        EXPECT_TRUE(texts.insert(tile.Text()).second) << tile.Text();
        EXPECT_TRUE(CheckTile(spec, tile, gpu).ok()) << tile.Text();
        EXPECT_LE(SharedBytes(spec, tile), gpu.shared_bytes_opt_in);
        EXPECT_LE(RegistersPerThread(spec, tile),
                  RegisterLimit(spec, tile, gpu));
      }
      EXPECT_EQ(texts.count(SelectTile(spec, gpu)->tile.Text()), 1u)
          << text << " " << gpu.name;
    }
  }
  EXPECT_EQ(TunedTiles(Spec("store/bf16/d64/g1/page16/bf16"), kTargets[1])
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
}

TEST(Tuner, GridsDivideTheHeadsAndTheLibrarysIsFirst) {
  const Tile tile = {8, 64, 3, 4};
  const GpuTarget& sm_90 = **FindTarget("sm_90");
  std::vector<std::string> texts;
  // 35376 shared bytes: two blocks fit an SM. 4 heads do not divide 6.
  for (const CandidateParts& parts :
       WithGrids(Spec(kDecode), sm_90, {tile}, 132, {1, 6, 1, 1024})) {
    texts.push_back(CandidateText(parts));
  }
  EXPECT_THAT(texts, ::testing::ElementsAre("8x64/3/4", "8x64/3/4 grid=132x2",
                                            "8x64/3/4 grid=264x2",
                                            "8x64/3/4 grid=132x1",
                                            "8x64/3/4 grid=264x1"));
  EXPECT_EQ(WithGrids(Spec(kDecode), sm_90, {tile}, 0, {1, 6, 1, 1}).size(),
            1u);
}

TEST(Tuner, RedZonesShowAByteBesideTheBuffer) {
  KVFORGE_HOST_ONLY("writes through a host pointer");
  auto buffer = RedZonedBuffer::Allocate(TestEngine(), "out", 100);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  ASSERT_TRUE(buffer->Reset(0xFF).ok());
  for (int i = 0; i < 100; ++i) buffer->as<uint8_t>()[i] = 7;
  EXPECT_TRUE(buffer->CheckZones().ok());
  for (const int at : {-1, 100, -4096, 4195}) {
    ASSERT_TRUE(buffer->Reset(0xFF).ok());
    buffer->as<uint8_t>()[at] = 0;
    const absl::Status status = buffer->CheckZones();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("byte ", at, " of out, which has 100")));
  }
}

absl::Status CheckOn(Engine& engine, const KernelSpec& spec,
                     const std::string& candidate) {
  auto check = CandidateCheck::Create(engine, spec, 2);
  if (!check.ok()) return check.status();
  const auto parts = ParseCandidate(candidate);
  const auto kernel = engine.Prepare(spec, *ParseTile(parts->tile));
  if (!kernel.ok()) return kernel.status();
  return (*check)->Check(**kernel, *parts);
}

TEST(Tuner, RightCandidatesPass) {
  for (const auto& [spec, candidate] :
       {std::pair{kDecode, "8x64/3/4"},
        {kDecode, "8x32/2/2 grid=11x2"},
        {kExtend, "32x64/1/2"},
        {"decode/nvfp4_row/d64/g3/page48/bf16/alibi=1/mask=custom/order=hnd/"
         "q_max=3/sinks=1/softcap=30/sparse=24/window=100",
         "8x32/2/2"}}) {
    KVFORGE_EXPECT_OK(CheckOn(TestEngine(), Spec(spec), candidate));
  }
}

// A template that does not renormalise its sum: a fast kernel that is wrong.
TEST(Tuner, AWrongKernelIsDataLoss) {
  KVFORGE_HOST_ONLY("compiles a broken template");
  std::string folder = ::testing::TempDir() + "kvforge-wrong-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  fs::create_directories(folder + "/ops");
  const std::string right(FindEmbeddedFile("ops/softmax.cuh")->text);
  const std::string wrong =
      absl::StrReplaceAll(right, {{"sum = sum * p_factor;", ""}});
  ASSERT_NE(right, wrong);
  std::ofstream(folder + "/ops/softmax.cuh") << wrong;
  EngineOptions options = TestEngine().options();
  options.templates_dir = folder;
  auto engine = Engine::Create(std::move(options));
  ASSERT_TRUE(engine.ok()) << engine.status();
  for (const auto& [spec, candidate] :
       {std::pair{kDecode, "8x16/2/1"}, {kExtend, "32x32/2/2"}}) {
    const absl::Status status = CheckOn(**engine, Spec(spec), candidate);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("expected"));
  }
  fs::remove_all(folder);
}

TEST(Tuner, AScoreFunctionIsRefusedByName) {
  const std::string text = absl::StrCat("decode/bf16/d64/g4/page16/bf16/score=",
                                        std::string(32, 'a'));
  const absl::Status status = CaseFor(Spec(text), 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("without score="));
}

TEST(Tuner, TheCpuIsNeverTimed) {
  KVFORGE_HOST_ONLY("a refusal of the host target");
  const absl::Status status =
      CandidateRunner::Create(TestEngine(), Spec(kDecode), {}, /*timed=*/true)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--check-only"));
}

// Timed launches read caches of valid rows through whole page sets: two tiles
// give the same finite rows, and every row is written.
TEST(Tuner, TimingProblemsAreValidForEachKindOfFormatAndFeature) {
  for (const char* text :
       {"decode/e4m3_row/d64/g4/page16/bf16",
        "decode/int4_row/d64/g4/page48/bf16/q_max=2",
        "decode/e4m3_channel/d64/g2/page16/f16/order=hnd",
        "decode/mxfp4/d64/g4/page16/bf16/sparse=24/v=nvfp4_row",
        "decode/e4m3_head/d64/g4/page16/bf16/alibi=1/mask=custom/sinks=1"}) {
    const KernelSpec spec = Spec(text);
    const TuneShape shape = {2, 4, spec.q_max, 130};
    auto problem = TimingProblem::Create(TestEngine(), spec, shape, 1 << 20);
    ASSERT_TRUE(problem.ok()) << problem.status();
    EXPECT_GE((*problem)->sets() * (*problem)->launch_bytes(), 4 << 20);
    std::vector<std::vector<uint8_t>> outs;
    for (const char* tile : {"8x32/2/2", "8x64/2/4"}) {
      const auto kernel = TestEngine().Prepare(spec, *ParseTile(tile));
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      const AttentionArgs args = (*problem)->Args((*problem)->sets() - 1);
      const auto run =
          AttentionRun::Create(TestEngine(), **kernel, {tile}, args);
      ASSERT_TRUE(run.ok()) << run.status();
      KVFORGE_EXPECT_OK((*run)->RunOnce(args));
      outs.push_back(*(*run)->out().Inside());
    }
    ASSERT_EQ(outs[0].size(), outs[1].size());
    for (size_t i = 0; i < outs[0].size(); i += 2) {
      // Neither poison nor another NaN; signs and exponents alike.
      const int high[] = {outs[0][i + 1], outs[1][i + 1]};
      ASSERT_NE(high[0] & 0x7F, 0x7F) << text << " element " << i / 2;
      ASSERT_NE(high[1] & 0x7F, 0x7F) << text << " element " << i / 2;
    }
  }
}

TEST(Tuner, ReportsSayWhatWonAndTheMapHasACellOfEach) {
  TuneReport report;
  report.job = {"a GPU", "sm_90", kExtend, "b1/h8/q2048/kv2048", {}};
  report.selected = "64x64/2/4";
  const auto add = [&](const char* candidate, TuneVerdict verdict, double us) {
    TuneRecord record;
    record.key = {"a GPU", kExtend, "b1/h8/q2048/kv2048", candidate, "digest"};
    record.verdict = verdict;
    record.timing = {us, 0.01, 9};
    report.result.records.push_back(record);
  };
  add("64x64/2/4", TuneVerdict::kTimed, 30);
  add("128x64/2/8", TuneVerdict::kTimed, 20);
  add("128x64/1/8", TuneVerdict::kTimed, 25);
  add("128x128/1/8", TuneVerdict::kSpills, 0);
  report.result.winner = ChooseFastest(report.result.records);
  const std::string table = ToTable(report);
  EXPECT_THAT(table, HasSubstr("winner 128x64/2/8: 20.00 us, spread 1.0 %; the "
                               "selector's 64x64/2/4: 30.00 us, 1.50 times"));
  EXPECT_LT(table.find("128x64/2/8"), table.find("128x64/1/8"));
  EXPECT_THAT(table, HasSubstr("spills"));
  EXPECT_THAT(table, ::testing::Not(HasSubstr("in turns")));
  report.turns = {{20, 21, 22}, {30, 33, 31}};
  EXPECT_THAT(ToTable(report), HasSubstr("in turns, 3 rounds: 21.00 and 31.00 "
                                         "us, 1.48 times, faster"));
  EXPECT_EQ(ToJson(report)["turns"]["verdict"], "faster");
  const std::string svg = ToSvg({report});
  EXPECT_THAT(svg, HasSubstr("20.00 us (1.00x)"));
  EXPECT_THAT(svg, HasSubstr("2 stages, 8 warps"));
  EXPECT_THAT(svg, HasSubstr("30.00 us (1.50x)"));
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("25.00 us")));
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

}  // namespace
}  // namespace kvforge::tune
