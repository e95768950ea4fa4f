#include "tests/host/host_kernel.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/host/clang_compiler.h"
#include "templates/embedded.h"

namespace kvforge {

std::string KernelText(const std::string& body) {
  return absl::StrCat(R"(#include "arch/select.cuh"
struct TestArgs {
  const unsigned* in;
  unsigned* out;
  int n;
};
extern "C" __constant__ int kvforge_shared_bytes = 256;
extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ TestArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int t = ThreadIndex();
  (void)t;
)",
                      body, "\n}\n");
}

absl::StatusOr<std::string> CompileTestKernel(const std::string& body) {
  HostSource source;
  source.name = "kernel.cu";
  source.text = KernelText(body);
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    source.files.push_back({std::string(file.path), std::string(file.text)});
  }
  return CompileHostObject(source);
}

absl::StatusOr<std::unique_ptr<HostModule>> LoadTestKernel(
    const std::string& body) {
  ASSIGN_OR_RETURN(const std::string object, CompileTestKernel(body));
  return HostModule::Load(object, kHostEntrySymbol);
}

absl::StatusOr<std::vector<uint32_t>> RunTestKernel(const HostModule& module,
                                                    const TestLaunch& launch,
                                                    int n) {
  constexpr int kWords = 1024;
  alignas(16) unsigned in[kWords];
  std::iota(in, in + kWords, 0u);
  std::vector<uint32_t> out(kWords);
  const TestArgs args = {in, out.data(), n};
  HostLaunch host;
  host.grid_blocks = launch.blocks;
  host.block_threads = launch.threads;
  host.shared_bytes = launch.shared_bytes;
  host.args = &args;
  host.seed = launch.seed;
  RETURN_IF_ERROR(module.Run(host).status());
  return out;
}

}  // namespace kvforge
