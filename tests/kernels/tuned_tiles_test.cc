// The engine and the winners of a tuning run: which tile a kernel gets.
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "compiler/tile/tile_selector.h"
#include "kernels/decode.h"
#include "runtime/tune/winners.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kSpec[] = "decode/e4m3_row/d64/g4/page16/bf16";
constexpr char kTuned[] = "8x32/2/2";
constexpr TuneShape kShape = {48, 8, 1, 4096};  // bucket b64/h8/q1/kv4096

class TunedTiles : public ::testing::Test {
 protected:
  TunedTiles() {
    std::string pattern = ::testing::TempDir() + "kvforge-tuned-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~TunedTiles() override { fs::remove_all(folder_); }

  std::string path() const { return folder_ + "/winners.json"; }

  // A winner of this build's kernel for the CPU's "device".
  Winner Of(const std::string& candidate, const std::string& shape) {
    const absl::StatusOr<CandidateParts> parts = ParseCandidate(candidate);
    Engine& engine = TestEngine();
    return {engine.fingerprint(),
            std::string(engine.gpu().name),
            kSpec,
            shape,
            candidate,
            KeyDigest(engine.Key(*ParseSpec(kSpec), *ParseTile(parts->tile),
                                 engine.gpu(), "host")),
            10,
            0.01};
  }

  absl::StatusOr<std::unique_ptr<Engine>> Create(
      const std::vector<Winner>& winners) {
    std::ofstream(path()) << Winners(winners).ToJson();
    EngineOptions options = TestEngine().options();
    options.tune_db = path();
    options.log = [this](absl::string_view line) {
      absl::StrAppend(&log_, line, "\n");
    };
    return Engine::Create(std::move(options));
  }

  std::string TileFrom(const std::vector<Winner>& winners,
                       const TuneShape* shape = nullptr) {
    const auto engine = Create(winners);
    EXPECT_TRUE(engine.ok()) << engine.status();
    const KernelSpec spec = *ParseSpec(kSpec);
    const auto kernel = shape == nullptr ? (*engine)->Prepare(spec)
                                         : (*engine)->PrepareFor(spec, *shape);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    // Again: what the log says it says once.
    EXPECT_EQ(*(shape == nullptr ? (*engine)->Prepare(spec)
                                 : (*engine)->PrepareFor(spec, *shape)),
              *kernel);
    return (*kernel)->tile().Text();
  }

  std::string Selected() {
    return SelectTile(*ParseSpec(kSpec), TestEngine().gpu())->tile.Text();
  }

  std::string folder_;
  std::string log_;
};

TEST_F(TunedTiles, PrepareTakesTheWinnerForAnyShape) {
  KVFORGE_HOST_ONLY("winners of a device's own fingerprint");
  ASSERT_NE(Selected(), kTuned);
  EXPECT_EQ(TileFrom({Of(kTuned, "")}), kTuned);
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(TunedTiles, PrepareForTakesTheWinnerOfTheBucketElseTheSelectors) {
  KVFORGE_HOST_ONLY("winners of a device's own fingerprint");
  const std::vector<Winner> winners = {Of(kTuned, "b64/h8/q1/kv4096")};
  EXPECT_EQ(TileFrom(winners, &kShape), kTuned);
  EXPECT_THAT(log_, IsEmpty());
  const TuneShape longer = {48, 8, 1, 4097};
  EXPECT_EQ(TileFrom(winners, &longer), Selected());
  EXPECT_EQ(log_, absl::StrCat("no winner for ", kSpec,
                               " at b64/h8/q1/kv8192 of this build on host ",
                               TestEngine().gpu().name, " in ", path(),
                               ": the selector's tile ", Selected(), "\n"));
  log_.clear();
  EXPECT_EQ(TileFrom(winners), Selected());
  EXPECT_THAT(log_, HasSubstr(absl::StrCat("no winner for ", kSpec, " of")));
}

TEST_F(TunedTiles, AnotherDeviceOrBuildGetsTheSelectorsTileAndALine) {
  KVFORGE_HOST_ONLY("winners of a device's own fingerprint");
  Winner elsewhere = Of(kTuned, "");
  elsewhere.device = "NVIDIA H200 sm_90 132 SMs";
  EXPECT_EQ(TileFrom({elsewhere}), Selected());
  EXPECT_THAT(log_, HasSubstr("no winner for "));
  log_.clear();
  Winner stale = Of(kTuned, "");
  stale.version[0] = stale.version[0] == '0' ? '1' : '0';
  EXPECT_EQ(TileFrom({stale}), Selected());
  EXPECT_THAT(log_, HasSubstr("of this build"));
}

TEST_F(TunedTiles, DecodeTakesTheGridThatWonWithItsTile) {
  KVFORGE_HOST_ONLY("winners of a device's own fingerprint");
  const auto engine =
      Create({Of(absl::StrCat(kTuned, " grid=24x2"), "b64/h8/q1/kv4096")});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto kernel = (*engine)->PrepareFor(*ParseSpec(kSpec), kShape);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const auto grid = [&](const DecodeSizes& sizes) {
    const DecodeGrid chosen = ChooseDecodeGrid(**engine, **kernel, sizes);
    return absl::StrCat(chosen.blocks, "x", chosen.heads_per_block);
  };
  EXPECT_EQ(grid({48, 8, 1, 4000}), "24x2");
  // No bucket of these, and sizes that say too little.
  EXPECT_NE(grid({48, 8, 1, 5000}), "24x2");
  EXPECT_NE(grid({48, 8}), "24x2");
}

TEST_F(TunedTiles, FilesAndTilesThatCannotBeAreErrors) {
  KVFORGE_HOST_ONLY("winners of a device's own fingerprint");
  // 16 warps of 8 stages: far beyond a block's shared memory.
  const auto engine = Create({Of("8x256/8/16", "")});
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->Prepare(*ParseSpec(kSpec)).status().code(),
            absl::StatusCode::kResourceExhausted);
  std::ofstream(path()) << "SQLite format 3";
  EngineOptions options = TestEngine().options();
  options.tune_db = path();
  const absl::Status status = Engine::Create(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--export"));
  options.tune_db = folder_ + "/none";
  EXPECT_EQ(Engine::Create(options).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace kvforge
