// Run calls whose launches do nothing: the argument checks alone, over
// addresses that nothing reads.
#ifndef KVFORGE_TESTS_KERNELS_RUN_CALLS_H_
#define KVFORGE_TESTS_KERNELS_RUN_CALLS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/engine.h"

namespace kvforge {

struct RunCall {
  std::string spec;
  // Returns the status of one run call that has work to do.
  std::function<absl::Status()> run;
};

// A run call of `kernel`, right in all its arguments.
std::function<absl::Status()> MakeRunCall(
    const Engine& engine, std::shared_ptr<const PreparedKernel> kernel);

// An engine of the recording library (recording_jit.cc), without a cache.
std::unique_ptr<Engine> RecordingEngine();
// One of the machine's GPU 0, with the environment's options.
std::unique_ptr<Engine> DriverEngine();

// One call of every spec, each right in all its arguments.
std::vector<RunCall> MakeRunCalls(Engine& engine,
                                  const std::vector<std::string>& specs);

}  // namespace kvforge

#endif  // KVFORGE_TESTS_KERNELS_RUN_CALLS_H_
