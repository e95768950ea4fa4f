// The compiler as a function of (spec, GPU, tile): emitted texts against
// goldens, stages, refusals, determinism.
//
// KVFORGE_UPDATE_GOLDENS=1 rewrites tests/emit/goldens and skips.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/compiler.h"
#include "compiler/tile/memory_model.h"
#include "compiler/tile/tile_selector.h"
#include "templates/embedded.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

KernelSpec Spec(const std::string& text) {
  const absl::StatusOr<KernelSpec> spec = ParseSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.value_or(KernelSpec());
}

const GpuTarget& Target(const std::string& name) {
  const absl::StatusOr<const GpuTarget*> target = FindTarget(name);
  EXPECT_TRUE(target.ok()) << target.status();
  return **target;
}

// One tile a kernel, so that a change of the selector changes no golden.
Tile TileFor(const KernelSpec& spec) {
  switch (spec.kernel) {
    case KernelKind::kStore:
    case KernelKind::kGather:
      return {16, 0, 1, 4};  // 4 warps * 4 rows of up to 128 values
    case KernelKind::kDecode:
      return {8, 64, 2, 4};
    case KernelKind::kExtend:
      if (spec.compute == Compute::kFp8) return {128, 128, 4, 8, true};
      return {64, 32, 2, 4};
    case KernelKind::kMerge:
      return {4, 0, 1, 4};
  }
  return {};
}

std::string ReadText(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path;
  return std::string{std::istreambuf_iterator<char>(stream), {}};
}

// The score function of SPECs that name one, and the digest they name it by.
constexpr char kScoreFile[] =
    KVFORGE_TEST_DATA "/../examples/relative_bias.mlir";
constexpr char kScoreDigest[] = "479c88ba3c54e9a26373095a00c4b6fe";

std::string Emit(const std::string& spec_text, const std::string& gpu) {
  const KernelSpec spec = Spec(spec_text);
  const absl::StatusOr<KernelText> text =
      CompileToText(spec, Target(gpu), TileFor(spec),
                    spec.score.empty() ? "" : ReadText(kScoreFile));
  EXPECT_TRUE(text.ok()) << spec_text << " for " << gpu << ": "
                         << text.status();
  return text.ok() ? text->source : "";
}

TEST(EmitWarpgroups, NamesTheirTemplate) {
  const KernelSpec spec = Spec("extend/e4m3_row/d128/g4/page16/bf16");
  const auto text =
      CompileToText(spec, Target("sm_90"), {128, 128, 4, 8, true}, "");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(text->source,
              HasSubstr("\nconstexpr bool kWarpgroups = true;\n"));
  EXPECT_THAT(text->source,
              HasSubstr("\n#include \"kernels/extend_warpgroups.cuh\"\n"));
  EXPECT_THAT(text->source, Not(HasSubstr("kernels/extend.cuh")));
}

TEST(EmitFp8, NamesItsTemplateAndLeavesCodesAsTheyAre) {
  const std::string text =
      Emit("extend/e4m3_row/d128/g4/page16/bf16/compute=fp8", "sm_90");
  EXPECT_THAT(text, HasSubstr("\n#include \"kernels/extend_fp8.cuh\"\n"));
  EXPECT_THAT(text, HasSubstr("using ScoreOperand = formats::E4m3Operand;"));
  EXPECT_THAT(text, HasSubstr("constexpr bool kScoreIsProduct = true;"));
  EXPECT_THAT(text, Not(HasSubstr("ToF16")));
  EXPECT_THAT(Emit("extend/e4m3_row/d128/g4/page16/bf16/compute=fp8/softcap=30",
                   "sm_90"),
              HasSubstr("constexpr bool kScoreIsProduct = false;"));
}

struct GoldenCase {
  std::string spec;
  std::string gpu;
};

// "decode/e4m3_row/d128" for sm_80: "decode_e4m3_row_d128.sm_80".
std::string GoldenName(const GoldenCase& c) {
  return absl::StrCat(absl::StrReplaceAll(c.spec, {{"/", "_"}, {"=", "-"}}),
                      ".", c.gpu);
}

std::vector<GoldenCase> GoldenCases() {
  std::vector<GoldenCase> cases;
  // The GPUs differ in their conversion instructions: none, e4m3, e2m1 too.
  for (const char* gpu : {"sm_80", "sm_89", "sm_100"}) {
    for (const KvFormat& format : kFormats) {
      if (!format.served) continue;
      for (const char* kernel : {"decode", "extend"}) {
        cases.push_back(
            {absl::StrCat(kernel, "/", format.name, "/d128/g4/page16/bf16"),
             gpu});
      }
      for (const char* kernel : {"store", "gather"}) {
        cases.push_back(
            {absl::StrCat(kernel, "/", format.name, "/d128/g1/page16/bf16"),
             gpu});
      }
    }
    cases.push_back({"merge/d128/bf16", gpu});
  }
  // One feature each; sm_80 shows what is repaid.
  for (const char* spec : {
           "decode/e4m3_row/d64/g7/page1/f16/sinks",
           "decode/bf16/d96/g5/page48/f32/out=bf16",
           "decode/f16/d64/g1/page16/bf16",
           "decode/e4m3_tensor/d80/g8/page64/bf16/softcap=30/window=4096",
           "decode/e4m3_row/d64/g1/page16/bf16/mask=full",
           "decode/e4m3_row/d64/g4/page64/bf16/sparse=16",
           "extend/e4m3_row/d64/g4/page16/bf16/alibi=1/mask=custom",
           "extend/nvfp4_row/d128/g4/page16/bf16/v=e4m3_tensor",
           "extend/e4m3_row/d192/g4/page16/bf16/dv=128",
           "store/nvfp4_row/d128/g1/page16/f32/v=bf16",
           "merge/d64/f32",
       }) {
    cases.push_back({spec, "sm_80"});
  }
  for (const char* spec : {"extend/e4m3_row/d128/g4/page16/bf16/compute=fp8",
                           "extend/e4m3_head/d128/g4/page16/bf16/compute=fp8/"
                           "softcap=30/v=e4m3_row"}) {
    cases.push_back({spec, "sm_90"});
  }
  for (const char* kernel : {"decode", "extend"}) {
    cases.push_back({absl::StrCat(kernel, "/e4m3_row/d64/g4/page16/bf16/score=",
                                  kScoreDigest),
                     "sm_80"});
  }
  return cases;
}

class Golden : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(Golden, TextIsUnchanged) {
  const std::string path = absl::StrCat(KVFORGE_TEST_DATA "/emit/goldens/",
                                        GoldenName(GetParam()), ".cu");
  const std::string text = Emit(GetParam().spec, GetParam().gpu);
  ASSERT_FALSE(text.empty());
  if (std::getenv("KVFORGE_UPDATE_GOLDENS")) {
    std::ofstream(path, std::ios::binary) << text;
    GTEST_SKIP() << "rewrote " << path;
  }
  std::ifstream stream(path, std::ios::binary);
  ASSERT_TRUE(stream) << path << " is missing; KVFORGE_UPDATE_GOLDENS=1 "
                      << "writes it";
  const std::string golden{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_EQ(text, golden);
}

INSTANTIATE_TEST_SUITE_P(All, Golden, ::testing::ValuesIn(GoldenCases()),
                         [](const auto& info) {
                           return absl::StrReplaceAll(GoldenName(info.param),
                                                      {{".", "_"}, {"-", "_"}});
                         });

TEST(Goldens, HaveNoFileWithoutACase) {
  size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(KVFORGE_TEST_DATA "/emit/goldens")) {
    files += entry.path().extension() == ".cu";
  }
  EXPECT_EQ(files, GoldenCases().size());
}

TEST(Text, IncludesEmbeddedTemplatesOnly) {
  for (const GoldenCase& c : GoldenCases()) {
    const std::string text = Emit(c.spec, c.gpu);
    const std::string marker = "#include \"";
    int includes = 0;
    for (size_t at = text.find(marker); at != std::string::npos;
         at = text.find(marker, at)) {
      at += marker.size();
      const std::string path = text.substr(at, text.find('"', at) - at);
      EXPECT_NE(FindEmbeddedFile(path), nullptr)
          << c.spec << " includes " << path;
      ++includes;
    }
    EXPECT_GE(includes, 4) << c.spec;
  }
}

TEST(Text, SoftcapReadsBackToTheSameFloat) {
  const std::pair<const char*, const char*> kCaps[] = {
      {"30", "30.0f"},
      {"0.1", "0.1f"},
      {"1e+10", "1e+10f"},
      {"16777217", "16777216.0f"},  // not an f32: rounds to 2^24
  };
  for (const auto& [cap, literal] : kCaps) {
    KernelSpec spec = Spec("decode/bf16/d64/g1/page16/bf16");
    spec.softcap = std::strtof(cap, nullptr);
    const absl::StatusOr<KernelText> text =
        CompileToText(spec, Target("sm_80"), TileFor(spec));
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_THAT(text->source,
                HasSubstr(absl::StrCat("formats::Softcap(s, ", literal, ")")));
  }
}

TEST(CompileToText, FactsFollowTheTile) {
  const KernelSpec spec = Spec("decode/e4m3_row/d128/g4/page16/bf16");
  const Tile tile{16, 64, 2, 4};
  const absl::StatusOr<KernelText> text =
      CompileToText(spec, Target("sm_90"), tile);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->entry_symbol, "kvforge_kernel");
  EXPECT_EQ(text->block_threads, 256);  // half of them copy
  EXPECT_EQ(text->shared_bytes, SharedBytes(spec, tile));
  EXPECT_THAT(text->source, HasSubstr("for sm_90, tile 16x64/2/4\n"));
}

TEST(CompileToText, AnEmptyTileIsTheSelectors) {
  const KernelSpec spec = Spec("extend/e4m3_row/d128/g4/page16/bf16");
  const absl::StatusOr<TileCandidate> chosen =
      SelectTile(spec, Target("sm_86"));
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  const absl::StatusOr<KernelText> text =
      CompileToText(spec, Target("sm_86"), Tile());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(text->source,
              HasSubstr(absl::StrCat("tile ", chosen->tile.Text(), "\n")));
}

TEST(CompileToText, RefusesByNameAndCode) {
  const KernelSpec good = Spec("decode/e4m3_row/d128/g4/page16/bf16");
  {
    KvFormat unserved = **FindFormat("mxfp8");
    unserved.served = false;
    KernelSpec spec = good;
    spec.k_format = spec.v_format = &unserved;
    const absl::Status status =
        CompileToText(spec, Target("sm_90"), TileFor(spec)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr("mxfp8"));
  }
  {
    ASSERT_EQ(kTargets[0].name, "sm_75");
    const absl::Status status =
        CompileToText(good, kTargets[0], TileFor(good)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr("sm_75"));
    // One cause, one line, and no trace of the compiler's insides.
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("kv.kernel")));
  }
  {
    const absl::Status status =
        CompileToText(good, Target("sm_86"), {8, 256, 8, 16}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("8x256/8/16"));
  }
  {
    const absl::Status status =
        CompileToText(good, Target("sm_86"), {8, 32, 2, 4}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("8x32/2/4"));
  }
}

TEST(CompileToText, AScoreFunctionNeedsItsOwnText) {
  const KernelSpec spec =
      Spec(absl::StrCat("decode/bf16/d64/g1/page16/bf16/score=", kScoreDigest));
  const absl::Status missing =
      CompileToText(spec, Target("sm_80"), TileFor(spec)).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr(absl::StrCat("the text of score function ",
                                     kScoreDigest, " is not known")));
  const absl::Status other =
      CompileToText(spec, Target("sm_80"), TileFor(spec),
                    "func.func @f(%s: f32, %i: i32, %j: i32, %h: i32) -> f32 "
                    "{ return %s : f32 }")
          .status();
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(other.message()),
      HasSubstr(absl::StrCat("the SPEC asks for score function ", kScoreDigest,
                             "; the text that was given is ")));
}

TEST(EmitStage, EachStageShowsItsPass) {
  const KernelSpec spec = Spec("decode/nvfp4_row/d128/g4/page16/bf16");
  const auto stage = [&](const char* name) {
    const absl::StatusOr<std::string> text =
        EmitStage(spec, Target("sm_80"), TileFor(spec), name);
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  };
  const std::string ir = stage("ir");
  EXPECT_THAT(ir, HasSubstr("kv.dequant"));
  EXPECT_THAT(ir, Not(HasSubstr("kv.decode")));
  const std::string placed = stage("placed");
  EXPECT_THAT(placed, Not(HasSubstr("kv.dequant")));
  EXPECT_THAT(placed, HasSubstr("kv.decode"));
  EXPECT_THAT(placed, Not(HasSubstr("E2m1ToF16Placed4")));
  const std::string codec = stage("codec");
  EXPECT_THAT(codec, HasSubstr("E2m1ToF16Placed4"));
  EXPECT_THAT(codec, Not(HasSubstr("8x64/2/4")));
  EXPECT_THAT(stage("tiled"), HasSubstr("tile(\"8x64/2/4\")"));
  EXPECT_EQ(stage("cuda"), Emit(spec.Text(), "sm_80"));
  const absl::Status unknown =
      EmitStage(spec, Target("sm_80"), TileFor(spec), "sass").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr("ir, placed, codec, tiled, cuda"));
}

TEST(CompileToText, IsDeterministicAcrossThreads) {
  const std::vector<GoldenCase> cases = GoldenCases();
  std::vector<std::string> expected;
  for (const GoldenCase& c : cases) expected.push_back(Emit(c.spec, c.gpu));
  std::vector<std::vector<std::string>> texts(4);
  std::vector<std::thread> threads;
  for (std::vector<std::string>& own : texts) {
    threads.emplace_back([&own, &cases] {
      for (const GoldenCase& c : cases) own.push_back(Emit(c.spec, c.gpu));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<std::string>& own : texts) EXPECT_EQ(own, expected);
}

}  // namespace
}  // namespace kvforge
