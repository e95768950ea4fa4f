// Every arch function on the host target, in three orders of the fibers.
#include <gtest/gtest.h>

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/host/clang_compiler.h"
#include "runtime/host/host_module.h"
#include "tests/arch/micro_cases.h"

namespace kvforge {

namespace {

// The output words of a run on the host target.
absl::StatusOr<std::vector<uint32_t>> RunMicroOnHost(const MicroCase& micro,
                                                     uint64_t seed) {
  HostSource source;
  source.name = micro.file + ".cuh";
  source.text = MicroText(micro);
  for (auto& [path, text] : MicroIncludes()) {
    source.files.push_back({path, text});
  }
  ASSIGN_OR_RETURN(const std::string object, CompileHostObject(source));
  ASSIGN_OR_RETURN(const std::unique_ptr<HostModule> module,
                   HostModule::Load(object, kHostEntrySymbol));
  std::vector<uint32_t> out(micro.expected.size(), kMicroUnwritten);
  MicroArgs args = {micro.in.data(), out.data(), micro.n, {}};
  if (micro.box) {
    TensorBox box = *micro.box;
    box.base = micro.in.data();
    EncodeHostTensorMap(box, args.map);
  }
  HostLaunch launch;
  launch.grid_blocks = micro.grid_blocks;
  launch.block_threads = module->block_threads();
  launch.shared_bytes = module->shared_bytes();
  launch.args = &args;
  launch.seed = seed;
  ASSIGN_OR_RETURN(const HostRun run, module->Run(launch));
  if (run.shared_high_water != launch.shared_bytes) {
    return absl::InternalError(absl::StrCat(
        micro.name, " reaches ", run.shared_high_water, " of the ",
        launch.shared_bytes, " bytes of shared memory that it asks for"));
  }
  return out;
}

class MicroHost : public ::testing::TestWithParam<MicroCase> {};

TEST_P(MicroHost, GivesTheReference) {
  for (const uint64_t seed : {1u, 2u, 0x9e3779b9u}) {
    const absl::StatusOr<std::vector<uint32_t>> out =
        RunMicroOnHost(GetParam(), seed);
    ASSERT_TRUE(out.ok()) << "seed " << seed << ": " << out.status();
    ASSERT_EQ(MicroMismatches(GetParam(), *out), "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, MicroHost, ::testing::ValuesIn(MicroCases()),
                         [](const ::testing::TestParamInfo<MicroCase>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace kvforge
