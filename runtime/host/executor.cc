#include "runtime/host/executor.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "arch/host_thread.h"
#include "runtime/base/status_macros.h"
#include "runtime/host/block.h"
#include "runtime/host/schedule.h"

namespace kvforge {
namespace {

constexpr int kMaxSharedBytes = 1 << 20;

Fiber& FiberOf(HostThread* thread) { return *reinterpret_cast<Fiber*>(thread); }

absl::Status CheckLaunch(const HostLaunch& launch) {
  const auto refuse = [](absl::string_view what, int64_t value,
                         absl::string_view rule) {
    return absl::InvalidArgumentError(
        absl::StrCat("host launch: ", what, " = ", value, " is not possible; ",
                     rule, "; launch with such a value"));
  };
  if (launch.grid_blocks < 0) {
    return refuse("grid_blocks", launch.grid_blocks, "it is 0 or more");
  }
  constexpr int kMaxThreads = kMaxWarps * kWarpLanes;
  if (launch.block_threads <= 0 || launch.block_threads % kWarpLanes != 0 ||
      launch.block_threads > kMaxThreads) {
    return refuse("block_threads", launch.block_threads,
                  "it is a multiple of 32, to 1024");
  }
  if (launch.shared_bytes < 0 || launch.shared_bytes > kMaxSharedBytes) {
    return refuse("shared_bytes", launch.shared_bytes, "it is 0 to 1048576");
  }
  return absl::OkStatus();
}

// A step through all blocks of a grid that visits each once.
int64_t BlockStride(int64_t blocks, Random& random) {
  while (true) {
    const int64_t stride = 1 + random.Next() % blocks;
    if (std::gcd(stride, blocks) == 1) return stride;
  }
}

}  // namespace

absl::StatusOr<HostRun> RunOnFibers(HostEntry entry, const HostLaunch& launch,
                                    FiberStackPool& pool) {
  RETURN_IF_ERROR(CheckLaunch(launch));
  if (launch.grid_blocks == 0) return HostRun{};
  ASSIGN_OR_RETURN(std::unique_ptr<FiberStacks> stacks,
                   pool.Take(launch.block_threads));
  HostRun run;
  absl::Status status;
  {
    Block block(entry, launch, *stacks);
    Random random(launch.seed);
    const int64_t stride = BlockStride(launch.grid_blocks, random);
    int64_t index = random.Next() % launch.grid_blocks;
    for (int64_t i = 0; i < launch.grid_blocks && status.ok(); ++i) {
      status = block.Run(index);
      index = (index + stride) % launch.grid_blocks;
    }
    run.shared_high_water = block.shared_high_water();
  }
  pool.Give(std::move(stacks));
  RETURN_IF_ERROR(status);
  return run;
}

std::vector<HostSymbol> HostSymbols() {
  const auto function = [](const char* name, auto* address) {
    return HostSymbol{name, reinterpret_cast<void*>(address)};
  };
  return {
      function("kvforge_host_shared_access", &kvforge_host_shared_access),
      function("kvforge_host_block_sync", &kvforge_host_block_sync),
      function("kvforge_host_part_sync", &kvforge_host_part_sync),
      function("kvforge_host_named_sync", &kvforge_host_named_sync),
      function("kvforge_host_collective", &kvforge_host_collective),
      function("kvforge_host_cp_async", &kvforge_host_cp_async),
      function("kvforge_host_cp_async_commit", &kvforge_host_cp_async_commit),
      function("kvforge_host_cp_async_wait", &kvforge_host_cp_async_wait),
      function("kvforge_host_mbarrier_init", &kvforge_host_mbarrier_init),
      function("kvforge_host_mbarrier_arrive", &kvforge_host_mbarrier_arrive),
      function("kvforge_host_mbarrier_wait", &kvforge_host_mbarrier_wait),
      function("kvforge_host_mbarrier_expect", &kvforge_host_mbarrier_expect),
      function("kvforge_host_tensor_copy", &kvforge_host_tensor_copy),
      function("kvforge_host_bulk_copy", &kvforge_host_bulk_copy),
      function("kvforge_host_async_fence", &kvforge_host_async_fence),
      function("kvforge_host_bad_access", &kvforge_host_bad_access),
      function("memcpy", &std::memcpy),
      function("memmove", &std::memmove),
      function("memset", &std::memset),
      function("memcmp", &std::memcmp),
      function("fmaf", &fmaf),
      function("exp2f", &exp2f),
      function("log2f", &log2f),
  };
}

}  // namespace kvforge

extern "C" {

void kvforge_host_shared_access(kvforge::HostThread* thread,
                                kvforge::HostAccess access, unsigned offset,
                                int bytes) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->SharedAccess(self, access, offset, bytes);
}

void kvforge_host_block_sync(kvforge::HostThread* thread) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->BlockSync(self);
}

void kvforge_host_part_sync(kvforge::HostThread* thread, int threads) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->PartSync(self, threads);
}

bool kvforge_host_named_sync(kvforge::HostThread* thread, int number,
                             int threads, bool wait, bool vote) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  return self.block->NamedSync(self, number, threads, wait, vote);
}

void kvforge_host_mbarrier_init(kvforge::HostThread* thread, unsigned barrier,
                                int count) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->MbarrierInit(self, barrier, count);
}

void kvforge_host_mbarrier_arrive(kvforge::HostThread* thread, unsigned barrier,
                                  bool with_copies) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->MbarrierArrive(self, barrier, with_copies);
}

void kvforge_host_mbarrier_wait(kvforge::HostThread* thread, unsigned barrier,
                                unsigned parity) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->MbarrierWait(self, barrier, parity);
}

void kvforge_host_mbarrier_expect(kvforge::HostThread* thread, unsigned barrier,
                                  unsigned bytes) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->MbarrierExpect(self, barrier, bytes);
}

void kvforge_host_tensor_copy(kvforge::HostThread* thread, unsigned shared,
                              const kvforge::HostTensorMap* map, const int* at,
                              unsigned barrier) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->TensorCopy(self, shared, *map, at, barrier);
}

void kvforge_host_bulk_copy(kvforge::HostThread* thread, unsigned shared,
                            const void* global, unsigned bytes,
                            unsigned barrier) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->BulkCopy(self, shared, global, bytes, barrier);
}

void kvforge_host_async_fence(kvforge::HostThread* thread) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->AsyncFence(self);
}

void kvforge_host_collective(kvforge::HostThread* thread,
                             kvforge::HostCollective op, unsigned* operands) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->Collective(self, op, operands);
}

void kvforge_host_cp_async(kvforge::HostThread* thread, unsigned shared,
                           const void* global, int bytes, bool valid) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->CpAsync(self, shared, global, bytes, valid);
}

void kvforge_host_cp_async_commit(kvforge::HostThread* thread) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->CpAsyncCommit(self);
}

void kvforge_host_cp_async_wait(kvforge::HostThread* thread, int pending) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->CpAsyncWait(self, pending);
}

void kvforge_host_bad_access(kvforge::HostThread* thread,
                             kvforge::HostAccess access,
                             unsigned long long address, int bytes) {
  kvforge::Fiber& self = kvforge::FiberOf(thread);
  self.block->BadAccess(self, access, address, bytes);
}

}  // extern "C"
