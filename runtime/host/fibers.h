// Stacks of fibers and the switch between them.
//
// A switch saves and loads the callee-saved registers only, some nanoseconds.
// A fiber may be abandoned at any switch: nothing on its stack is destroyed.
#ifndef KVFORGE_RUNTIME_HOST_FIBERS_H_
#define KVFORGE_RUNTIME_HOST_FIBERS_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"

namespace kvforge {

// Where a fiber that is not running continues.
using FiberContext = void*;

// Makes a fiber whose first switch calls entry(argument) on the memory below
// `stack_top` (16-byte aligned). `entry` must not return.
FiberContext MakeFiber(void* stack_top, size_t stack_bytes,
                       void (*entry)(void* argument), void* argument);

// Runs `to` until it is switched from; *from is where the caller continues.
void SwitchFiber(FiberContext* from, FiberContext to);

// Stacks of kHostStackBytes (arch/host_thread.h), aligned to their size, a
// guard below each. Memory is taken as it is touched.
class FiberStacks {
 public:
  // kResourceExhausted if the address space cannot be had.
  static absl::StatusOr<std::unique_ptr<FiberStacks>> Create(int stacks);
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  int stacks() const { return stacks_; }
  // The 128 bytes above the stack that belong to its fiber (HostThread).
  void* Thread(int stack) const;
  size_t UsableBytes(int stack) const;  // below Thread(stack)

 private:
  FiberStacks() = default;

  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  unsigned long first_ = 0;  // lowest address of stack 0
  int stacks_ = 0;
};

// Keeps stacks between launches. Thread safe.
class FiberStackPool {
 public:
  // One for all modules: each stack takes two of the process's memory maps,
  // which a pool a module would use up after some hundred kernels.
  static FiberStackPool& OfProcess();

  // At least that many stacks, for the caller alone until given back.
  absl::StatusOr<std::unique_ptr<FiberStacks>> Take(int stacks);
  void Give(std::unique_ptr<FiberStacks> stacks);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<FiberStacks>> free_;
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_HOST_FIBERS_H_
