// Compiles a kernel of a few lines for the host target and runs it.
#ifndef KVFORGE_TESTS_HOST_HOST_KERNEL_H_
#define KVFORGE_TESTS_HOST_HOST_KERNEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/host/host_module.h"

namespace kvforge {

// Arguments of the kernel, as its text declares them.
struct TestArgs {
  const unsigned* in;
  unsigned* out;
  int n;
};

// The text of a kernel with that body: `args` is a TestArgs, namespace
// kvforge::arch is open, `t` is the thread's index.
std::string KernelText(const std::string& body);

absl::StatusOr<std::string> CompileTestKernel(const std::string& body);
absl::StatusOr<std::unique_ptr<HostModule>> LoadTestKernel(
    const std::string& body);

struct TestLaunch {
  int64_t blocks = 1;
  int threads = 64;
  int shared_bytes = 256;
  uint64_t seed = 1;
};

// Runs it over 1024 words of zeros; `in` defaults to 0, 1, 2, ...
absl::StatusOr<std::vector<uint32_t>> RunTestKernel(
    const HostModule& module, const TestLaunch& launch = {}, int n = 0);

}  // namespace kvforge

#endif  // KVFORGE_TESTS_HOST_HOST_KERNEL_H_
