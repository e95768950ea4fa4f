// One block of threads on fibers: its barriers, warp operations, shared memory
// and asynchronous copies. Internal to the executor.
#ifndef KVFORGE_RUNTIME_HOST_BLOCK_H_
#define KVFORGE_RUNTIME_HOST_BLOCK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "arch/host_thread.h"
#include "runtime/host/async_copies.h"
#include "runtime/host/executor.h"
#include "runtime/host/fibers.h"
#include "runtime/host/mbarrier.h"
#include "runtime/host/schedule.h"
#include "runtime/host/shared_order.h"
#include "runtime/host/warp_ops.h"
#include "runtime/host/warp_products.h"

namespace kvforge {

class Block;

// Lies where HostThreadAddress says; device code sees its first part.
struct Fiber {
  HostThread thread;
  Block* block;
  FiberContext context;
};
static_assert(sizeof(Fiber) <= kHostThreadBytes);

class Block {
 public:
  Block(HostEntry entry, const HostLaunch& launch, FiberStacks& stacks);

  // Runs the block of that index from start to end, or to its first error.
  absl::Status Run(int64_t block_index);

  int shared_high_water() const { return shared_high_water_; }

  // Called on a fiber. Those that find an error do not return.
  void SharedAccess(Fiber& self, HostAccess access, uint32_t offset, int bytes);
  void BlockSync(Fiber& self);
  // The first `threads` threads of the block.
  void PartSync(Fiber& self, int threads);
  // Barrier `number` of `threads` threads; without `wait` only arrives. Whether
  // one of them voted.
  bool NamedSync(Fiber& self, int number, int threads, bool wait, bool vote);
  void Collective(Fiber& self, HostCollective op, uint32_t* operands);
  void CpAsync(Fiber& self, uint32_t shared, const void* global, int bytes,
               bool valid);
  void CpAsyncCommit(Fiber& self);
  void CpAsyncWait(Fiber& self, int pending);
  void MbarrierInit(Fiber& self, uint32_t barrier, int count);
  // `with_copies`: the end of the phase lands this thread's copies under way.
  void MbarrierArrive(Fiber& self, uint32_t barrier, bool with_copies);
  void MbarrierWait(Fiber& self, uint32_t barrier, uint32_t parity);
  void MbarrierExpect(Fiber& self, uint32_t barrier, uint32_t bytes);
  void TensorCopy(Fiber& self, uint32_t shared, const HostTensorMap& map,
                  const int* at, uint32_t barrier);
  void BulkCopy(Fiber& self, uint32_t shared, const void* global,
                uint32_t bytes, uint32_t barrier);
  void AsyncFence(Fiber& self);
  [[noreturn]] void BadAccess(Fiber& self, HostAccess access, uint64_t address,
                              int bytes);

 private:
  struct Warp {
    uint32_t arrived = 0;  // lanes in `op`
    uint32_t in_barrier = 0;
    uint32_t in_part_sync = 0;
    uint32_t in_mbarrier = 0;
    uint32_t in_named_sync = 0;
    bool named_vote = false;  // of the last barrier that the warp waited at
    uint32_t exited = 0;
    HostCollective op = kWarpSync;
    LaneOperands operands = {};
  };

  struct NamedBarrier {
    int threads = 0;
    int arrived = 0;
    uint32_t lanes[kMaxWarps] = {};  // of warps that have come in part
    SharedOrder::Clock clock;        // what comes before its end
    std::vector<int> waiting;        // threads
    bool any = false;                // vote
  };
  static constexpr unsigned char kPoison = 0xff;
  static constexpr int kGroupWarps = 4;  // of a warpgroup

  static std::string Hex(uint64_t address);
  static void FiberMain(void* fiber);

  Fiber& FiberAt(int thread) { return *fibers_[thread]; }
  Warp& WarpOf(const Fiber& fiber) {
    return warps_[fiber.thread.thread_index / kWarpLanes];
  }

  // Ends the launch with order_'s fault if an access is not `ordered`.
  void CheckOrder(Fiber& self, const char* op, uint32_t offset, int bytes,
                  bool ordered);
  void SetOrderError(const Fiber& self, const char* op, uint32_t offset,
                     int bytes);
  // Runs other fibers until this one is ready again.
  void Suspend(Fiber& self);
  // Ends the launch: no fiber is ready.
  [[noreturn]] void FailStuck(Fiber& self);
  void Exit(Fiber& self);
  void LdMatrix(Fiber& self, Warp& warp);
  // The warp operations on products of a warpgroup.
  void RunProducts(Fiber& self, Warp& warp);
  void CheckProductsDone(Fiber& self);
  // The mbarrier at a shared address that `op` takes.
  Mbarrier& MbarrierAt(Fiber& self, const char* op, uint32_t barrier);
  // Lands the copies and wakes the waiting if all that the phase needs has
  // come.
  void EndPhaseIfComplete(Mbarrier& mbarrier);
  // The arena byte of an access, or null if it is out of bounds or misaligned.
  unsigned char* Shared(Fiber& fiber, uint32_t address, uint32_t bytes);

  // "host launch: thread T of block B: <what>".
  void SetError(const Fiber& self, absl::string_view what);
  // Ends the launch from a fiber, with the error that is set. All fibers are
  // abandoned: the caller must hold nothing that needs to be destroyed.
  [[noreturn]] void Abandon();
  // What is wrong with an access, and what to do.
  static std::string GlobalFault(const char* op, uint64_t address, int bytes);
  std::string SharedFault(const char* op, uint64_t address, int bytes) const;
  // "threads 0 to 15 wait in BlockSync, ...", a group a warp and operation.
  std::string Waiting() const;

  const HostEntry entry_;
  const HostLaunch launch_;
  FiberStacks& stacks_;
  const int warp_count_;

  struct ArenaDeleter {
    void operator()(unsigned char* arena) const;
  };
  std::unique_ptr<unsigned char[], ArenaDeleter> arena_;
  SharedOrder order_;
  std::vector<Fiber*> fibers_;
  std::vector<AsyncCopies> copies_;  // by thread
  std::vector<Warp> warps_;
  std::vector<WarpProducts> products_;  // by warp
  Schedule schedule_;
  FiberContext main_ = nullptr;
  std::map<uint32_t, Mbarrier> mbarriers_;  // by arena offset
  std::map<int, NamedBarrier> named_;       // by number
  int in_barrier_ = 0;                      // threads
  int in_part_sync_ = 0;
  int exited_ = 0;  // threads
  int shared_high_water_ = 0;
  absl::Status status_;
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_HOST_BLOCK_H_
