#include "runtime/host/fibers.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "arch/host_thread.h"

namespace kvforge {
namespace {

// Larger than any frame of a kernel, so that no frame steps over it.
constexpr size_t kGuardBytes = 64 * 1024;

// Lies at the top of a new fiber's stack until its first switch.
struct FiberStart {
  void (*entry)(void*);
  void* argument;
};

// What a switch hands over: where to save the context that it leaves.
struct Departure {
  FiberContext* from;
};

void FirstSwitch(boost::context::detail::transfer_t transfer) {
  const Departure* departure = static_cast<Departure*>(transfer.data);
  *departure->from = transfer.fctx;
  // The start record lies above this frame: see MakeFiber.
  const auto frame =
      reinterpret_cast<unsigned long>(__builtin_frame_address(0));
  const auto* start = reinterpret_cast<const FiberStart*>(
      HostThreadAddress(frame) - sizeof(FiberStart));
  start->entry(start->argument);
  __builtin_trap();
}

}  // namespace

FiberContext MakeFiber(void* stack_top, size_t stack_bytes,
                       void (*entry)(void* argument), void* argument) {
  FiberStart* start = static_cast<FiberStart*>(stack_top) - 1;
  *start = {entry, argument};
  return boost::context::detail::make_fcontext(
      start, stack_bytes - sizeof(FiberStart), FirstSwitch);
}

void SwitchFiber(FiberContext* from, FiberContext to) {
  Departure departure = {from};
  const boost::context::detail::transfer_t transfer =
      boost::context::detail::jump_fcontext(to, &departure);
  *static_cast<Departure*>(transfer.data)->from = transfer.fctx;
}

absl::StatusOr<std::unique_ptr<FiberStacks>> FiberStacks::Create(int stacks) {
  std::unique_ptr<FiberStacks> result(new FiberStacks);
  // One stack more than asked for: the mapping starts anywhere.
  const size_t bytes = (static_cast<size_t>(stacks) + 1) * kHostStackBytes;
  void* const mapping =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapping == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "host launch: no address space for ", stacks, " fiber stacks (",
        bytes >> 20, " MiB)", "; one stack a thread of a block is needed",
        "; raise the limit of virtual memory (ulimit -v)"));
  }
  result->mapping_ = mapping;
  result->mapping_bytes_ = bytes;
  const auto start = reinterpret_cast<unsigned long>(mapping);
  result->first_ =
      (start + kHostStackBytes - 1) / kHostStackBytes * kHostStackBytes;
  result->stacks_ = stacks;
  for (int i = 0; i < stacks; ++i) {
    void* const guard =
        reinterpret_cast<void*>(result->first_ + i * kHostStackBytes);
    if (mprotect(guard, kGuardBytes, PROT_NONE) != 0) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "host launch: no guard for fiber stack ", i, " of ", stacks,
          "; each stack takes two memory maps",
          "; raise vm.max_map_count or run fewer launches at once"));
    }
  }
  return result;
}

FiberStacks::~FiberStacks() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

void* FiberStacks::Thread(int stack) const {
  return reinterpret_cast<void*>(
      HostThreadAddress(first_ + stack * kHostStackBytes));
}

size_t FiberStacks::UsableBytes(int stack) const {
  return reinterpret_cast<unsigned long>(Thread(stack)) -
         (first_ + stack * kHostStackBytes) - kGuardBytes;
}

FiberStackPool& FiberStackPool::OfProcess() {
  static FiberStackPool* const pool = new FiberStackPool;  // never destroyed
  return *pool;
}

absl::StatusOr<std::unique_ptr<FiberStacks>> FiberStackPool::Take(int stacks) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (std::unique_ptr<FiberStacks>& entry : free_) {
      if (entry->stacks() >= stacks) {
        std::unique_ptr<FiberStacks> taken = std::move(entry);
        entry = std::move(free_.back());
        free_.pop_back();
        return taken;
      }
    }
  }
  return FiberStacks::Create(stacks);
}

void FiberStackPool::Give(std::unique_ptr<FiberStacks> stacks) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(std::move(stacks));
}

}  // namespace kvforge
