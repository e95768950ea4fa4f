// Runs a kernel's grid on fibers, one fiber a CUDA thread, on the caller's
// thread. Device code reaches it through arch/host.cuh.
//
// Blocks run one after another, in an order drawn from the seed; the fibers of
// a block run in a random order of warps and of lanes. A launch is the same
// again for the same seed. What the twin checks ends the launch with an error:
// accesses out of bounds or misaligned, warp operations that not all lanes take
// part in, fibers that all wait, asynchronous copies that nothing waits for.
#ifndef KVFORGE_RUNTIME_HOST_EXECUTOR_H_
#define KVFORGE_RUNTIME_HOST_EXECUTOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/host/fibers.h"

namespace kvforge {

struct HostLaunch {
  int64_t grid_blocks = 0;     // 0 runs nothing
  int block_threads = 0;       // multiple of 32, to 1024
  int shared_bytes = 0;        // size of the arena
  const void* args = nullptr;  // the kernel's argument struct
  uint64_t seed = 0;           // of the fiber order
};

struct HostRun {
  int shared_high_water = 0;  // one past the highest shared byte accessed
};

// A kernel's entry for one thread: its argument struct by address.
using HostEntry = void (*)(const void* args);

// Errors  kInvalidArgument  the launch breaks a rule above
//         kInternal         the kernel did what the twin checks: thread, block,
//                           operation, address
absl::StatusOr<HostRun> RunOnFibers(HostEntry entry, const HostLaunch& launch,
                                    FiberStackPool& stacks);

// The functions that device code may call: arch/host_thread.h and those of the
// C library that Clang calls by itself.
struct HostSymbol {
  const char* name;
  void* address;
};
std::vector<HostSymbol> HostSymbols();

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_HOST_EXECUTOR_H_
