// Every micro-kernel compiles, without a warning, for every GPU of the table
// that has its function.
#include <gtest/gtest.h>

#include <set>

#include "absl/status/status.h"
#include "compiler/target/target.h"
#include "runtime/base/knobs.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "tests/arch/micro_cases.h"

namespace kvforge {
namespace {

TEST(MicroCompile, ForEveryServedGpu) {
  const auto compiler = NvrtcCompiler::Open(Knobs());
  if (absl::IsUnavailable(compiler.status())) {
    GTEST_SKIP() << "micro-kernels were not compiled: " << compiler.status();
  }
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  std::vector<NvrtcHeader> headers;
  for (auto& [path, text] : MicroIncludes()) headers.push_back({path, text});

  int compiled = 0;
  std::set<std::string> files;
  for (const MicroCase& micro : MicroCases()) {
    if (!files.insert(MicroText(micro)).second) continue;
    for (const GpuTarget& target : kTargets) {
      if (!target.served ||
          target.compute_capability < micro.min_compute_capability ||
          target.compute_capability > micro.max_compute_capability) {
        continue;
      }
      NvrtcInput input;
      input.name = micro.file + ".cu";
      input.source = MicroText(micro);
      input.headers = headers;
      input.arch = std::string(target.nvrtc_arch);
      input.kernel = "kvforge_kernel";
      const auto output = (*compiler)->Compile(input);
      EXPECT_TRUE(output.ok())
          << micro.file << " for " << input.arch << ": " << output.status();
      ++compiled;
    }
  }
  // Ten GPUs, but for conversions that eight of them lack.
  EXPECT_GT(compiled, 300);
}

}  // namespace
}  // namespace kvforge
