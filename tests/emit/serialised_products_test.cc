// ptxas makes products of warpgroups wait for each other where it cannot prove
// that their registers are left alone, and says so in lines of its log that are
// no warnings. Extend on warpgroups then takes twice the time; nothing else
// tells. Compiles with NVRTC; needs no GPU.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "compiler/compiler.h"
#include "compiler/tile/tile_selector.h"
#include "runtime/base/knobs.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "templates/embedded.h"

namespace kvforge {
namespace {

// Lines of the log that speak of products: of those serialised ("Potential
// Performance Loss") and of waits that ptxas puts between.
constexpr absl::string_view kProductLine = "(C75";

std::vector<std::string> SerialisedLines(absl::string_view log) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    if (absl::StrContains(line, kProductLine)) lines.emplace_back(line);
  }
  return lines;
}

NvrtcInput Input(const std::string& source, const std::string& symbol,
                 const GpuTarget& gpu) {
  NvrtcInput input;
  input.name = "extend.cu";
  input.source = source;
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    input.headers.push_back({std::string(file.path), std::string(file.text)});
  }
  input.arch = std::string(gpu.nvrtc_arch);
  input.kernel = symbol;
  return input;
}

class SerialisedProducts : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<Knobs> knobs = EnvironmentKnobs();
    ASSERT_TRUE(knobs.ok()) << knobs.status();
    absl::StatusOr<std::unique_ptr<NvrtcCompiler>> compiler =
        NvrtcCompiler::Open(*knobs);
    if (absl::IsUnavailable(compiler.status())) {
      GTEST_SKIP() << "products of warpgroups were not compiled: "
                   << compiler.status();
    }
    ASSERT_TRUE(compiler.ok()) << compiler.status();
    compiler_ = *std::move(compiler);
  }

  void ExpectNoneSerialised(const KernelSpec& spec, const Tile& tile) {
    ASSERT_TRUE(tile.warpgroups) << spec.Text() << " " << tile.Text();
    const GpuTarget& gpu = **FindTarget("sm_90");
    const absl::StatusOr<KernelText> text = CompileToText(spec, gpu, tile);
    ASSERT_TRUE(text.ok()) << text.status();
    const absl::StatusOr<NvrtcOutput> output =
        compiler_->Compile(Input(text->source, text->entry_symbol, gpu));
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(SerialisedLines(output->log), std::vector<std::string>())
        << spec.Text() << " " << tile.Text();
  }

  std::unique_ptr<NvrtcCompiler> compiler_;
};

// The lines are in the log, else the test below could not fail: here a product
// is under way or not, and its accumulator is added to.
TEST_F(SerialisedProducts, AreToldOfWhereRegistersAreTouched) {
  constexpr char kText[] = R"(
#include "arch/sm90a.cuh"
extern "C" __global__ void touched(float* out, int steps) {
  using kvforge::arch::Wgmma;
  float d[8][4] = {};
  const kvforge::u64 a = kvforge::arch::SharedMatrix(1024, 16, 1024);
  for (int i = 0; i < steps; ++i) {
    if (out[i] > 0) {
      kvforge::arch::WgmmaBegin();
      Wgmma<64>::F16<false>(d, a, a, true);
      kvforge::arch::WgmmaCommit();
    }
    d[0][0] += out[i];
  }
  kvforge::arch::WgmmaWait<0>(d);
  out[threadIdx.x] = d[0][0] + d[7][3];
}
)";
  const absl::StatusOr<NvrtcOutput> output =
      compiler_->Compile(Input(kText, "touched", **FindTarget("sm_90")));
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_FALSE(SerialisedLines(output->log).empty()) << output->log;
}

TEST_F(SerialisedProducts, AreNoneOfExtend) {
  const GpuTarget& gpu = **FindTarget("sm_90");
  for (const char* text : {
           "extend/bf16/d64/g4/page16/bf16",
           "extend/bf16/d128/g4/page16/bf16",
           "extend/e4m3_channel/d128/g4/page16/bf16",
           "extend/e4m3_row/d128/g4/page16/bf16/alibi=1",
           "extend/e4m3_row/d128/g4/page16/bf16/compute=fp8",
           "extend/e4m3_row/d128/g4/page16/bf16/mask=custom",
           "extend/e4m3_row/d128/g4/page16/bf16/softcap=30/window=99",
           "extend/e4m3_row/d192/g4/page16/bf16/dv=128",
           "extend/e4m3_row/d64/g8/page64/f16",
           "extend/e4m3_tensor/d128/g1/page1/bf16/compute=fp8/mask=full",
           "extend/e4m3_tensor/d192/g4/page16/bf16",
           "extend/int8_row/d128/g7/page48/f32",
           "extend/nvfp4/d128/g4/page16/bf16",
           "extend/nvfp4_row/d128/g4/page16/bf16",
       }) {
    const absl::StatusOr<KernelSpec> spec = ParseSpec(text);
    ASSERT_TRUE(spec.ok()) << spec.status();
    const absl::StatusOr<TileCandidate> chosen = SelectTile(*spec, gpu);
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    ExpectNoneSerialised(*spec, chosen->tile);
    for (const NamedTile& other : OtherExtendTiles(*spec, gpu)) {
      if (other.tile.images) ExpectNoneSerialised(*spec, other.tile);
    }
  }
}

}  // namespace
}  // namespace kvforge
