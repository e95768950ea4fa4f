#include "runtime/host/block.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kvforge {
namespace {

constexpr std::align_val_t kArenaAlignment{1024};

}  // namespace

std::string Block::Hex(uint64_t address) {
  return absl::StrCat("0x", absl::Hex(address));
}

void Block::ArenaDeleter::operator()(unsigned char* arena) const {
  ::operator delete[](arena, kArenaAlignment);
}

Block::Block(HostEntry entry, const HostLaunch& launch, FiberStacks& stacks)
    : entry_(entry),
      launch_(launch),
      stacks_(stacks),
      warp_count_(launch.block_threads / kWarpLanes),
      arena_(new (kArenaAlignment) unsigned char[launch.shared_bytes + 1]),
      order_(launch.shared_bytes, warp_count_),
      copies_(launch.block_threads),
      warps_(warp_count_),
      products_(warp_count_) {
  for (int i = 0; i < launch.block_threads; ++i) {
    Fiber* fiber = new (stacks.Thread(i)) Fiber();
    fiber->thread.shared = arena_.get();
    fiber->thread.shared_bytes = launch.shared_bytes;
    fiber->thread.thread_index = i;
    fiber->thread.block_threads = launch.block_threads;
    fiber->thread.block_count = launch.grid_blocks;
    fiber->block = this;
    fibers_.push_back(fiber);
  }
}

absl::Status Block::Run(int64_t block_index) {
  std::memset(arena_.get(), kPoison, launch_.shared_bytes);
  order_.StartBlock();
  schedule_.Reset(Random(launch_.seed ^ Random(block_index).Next()).Next(),
                  warp_count_);
  in_barrier_ = 0;
  in_part_sync_ = 0;
  exited_ = 0;
  mbarriers_.clear();
  named_.clear();
  for (int i = 0; i < launch_.block_threads; ++i) {
    fibers_[i]->thread.block_index = block_index;
    fibers_[i]->context = MakeFiber(stacks_.Thread(i), stacks_.UsableBytes(i),
                                    FiberMain, fibers_[i]);
    copies_[i].Clear();
  }
  for (int warp = 0; warp < warp_count_; ++warp) {
    warps_[warp] = Warp();
    products_[warp] = WarpProducts();
    schedule_.SetReady(warp, ~0u);
  }
  SwitchFiber(&main_, FiberAt(schedule_.Take()).context);
  for (const Fiber* fiber : fibers_) {
    shared_high_water_ = std::max(
        shared_high_water_, static_cast<int>(fiber->thread.shared_high_water));
  }
  return status_;
}

void Block::FiberMain(void* fiber) {
  Fiber& self = *static_cast<Fiber*>(fiber);
  self.block->entry_(self.block->launch_.args);
  self.block->Exit(self);
}

void Block::CheckOrder(Fiber& self, const char* op, uint32_t offset, int bytes,
                       bool ordered) {
  if (ordered) return;
  SetOrderError(self, op, offset, bytes);
  Abandon();
}

void Block::SetOrderError(const Fiber& self, const char* op, uint32_t offset,
                          int bytes) {
  SetError(self,
           absl::StrCat(op, " of ", bytes, " bytes at shared address ",
                        Hex(kHostSharedBase + offset), " ", order_.fault()));
}

void Block::SharedAccess(Fiber& self, HostAccess access, uint32_t offset,
                         int bytes) {
  const int thread = self.thread.thread_index;
  if (access == kLoadShared) {
    CheckOrder(self, "LoadShared", offset, bytes,
               order_.Read(thread, offset, bytes));
  } else {
    CheckOrder(self, "StoreShared", offset, bytes,
               order_.Write(thread, offset, bytes));
  }
}

void Block::Suspend(Fiber& self) {
  const int next = schedule_.Take();
  if (next == self.thread.thread_index) return;
  if (next == Schedule::kNone) FailStuck(self);
  SwitchFiber(&self.context, FiberAt(next).context);
}

void Block::FailStuck(Fiber& self) {
  SetError(self,
           absl::StrCat("no thread of the block can run: ", Waiting(),
                        "; a warp operation ends when all 32 lanes have come, "
                        "BlockSync and PartSync when all their threads have, a "
                        "wait when its phase's arrivals have; let them come"));
  Abandon();
}

void Block::Exit(Fiber& self) {
  Warp& warp = WarpOf(self);
  const size_t not_landed = copies_[self.thread.thread_index].not_landed();
  if (not_landed != 0) {
    SetError(self,
             absl::StrCat(
                 "exits with ", not_landed,
                 " asynchronous copies that no wait covers; every copy must "
                 "land before the kernel ends; commit and wait for them"));
    Abandon();
  }
  CheckProductsDone(self);
  if (warp.arrived != 0) {
    const int mate = std::countr_zero(warp.arrived) +
                     self.thread.thread_index / kWarpLanes * kWarpLanes;
    {
      SetError(self,
               absl::StrCat("exits while thread ", mate, " of its warp is in ",
                            CollectiveName(warp.op),
                            "; all 32 lanes take part in a warp operation; "
                            "let no lane leave before it"));
      Abandon();
    }
  }
  if (in_barrier_ != 0) {
    SetError(self,
             absl::StrCat("exits while ", Waiting(),
                          "; all threads of a block take part in BlockSync; "
                          "let no thread leave before it"));
    Abandon();
  }
  warp.exited |= 1u << self.thread.thread_index % kWarpLanes;
  ++exited_;
  const int next = schedule_.Take();
  if (next != Schedule::kNone) {
    SwitchFiber(&self.context, FiberAt(next).context);
  }
  // The last one, unless others wait for what cannot come any more.
  if (exited_ < launch_.block_threads) FailStuck(self);
  SwitchFiber(&self.context, main_);
}

void Block::BlockSync(Fiber& self) {
  if (exited_ != 0) {
    SetError(self,
             absl::StrCat(
                 "calls BlockSync after ", exited_,
                 " threads of its block have exited; all threads of a block "
                 "take part in it; let no thread leave before it"));
    Abandon();
  }
  Warp& warp = WarpOf(self);
  warp.in_barrier |= 1u << self.thread.thread_index % kWarpLanes;
  if (++in_barrier_ == launch_.block_threads) {
    in_barrier_ = 0;
    order_.BlockSynced();
    for (int i = 0; i < warp_count_; ++i) {
      warps_[i].in_barrier = 0;
      schedule_.SetReady(i, ~0u);
    }
  }
  Suspend(self);
}

void Block::PartSync(Fiber& self, int threads) {
  const int thread = self.thread.thread_index;
  if (thread >= threads || threads > launch_.block_threads ||
      threads % kWarpLanes != 0) {
    SetError(self, absl::StrCat("calls PartSync of the first ", threads,
                                " threads; these are whole warps of the block, "
                                "the calling thread among them; let only them "
                                "come to it"));
    Abandon();
  }
  WarpOf(self).in_part_sync |= 1u << thread % kWarpLanes;
  if (++in_part_sync_ == threads) {
    in_part_sync_ = 0;
    order_.PartSynced(threads / kWarpLanes);
    for (int i = 0; i < threads / kWarpLanes; ++i) {
      warps_[i].in_part_sync = 0;
      schedule_.SetReady(i, ~0u);
    }
  }
  Suspend(self);
}

bool Block::NamedSync(Fiber& self, int number, int threads, bool wait,
                      bool vote) {
  constexpr int kFirst = 2;
  constexpr int kLast = 15;
  const int thread = self.thread.thread_index;
  NamedBarrier& barrier = named_[number];
  if (number < kFirst || number > kLast || threads <= 0 ||
      threads % kWarpLanes != 0 || threads > launch_.block_threads ||
      (barrier.arrived != 0 && barrier.threads != threads)) {
    SetError(self,
             absl::StrCat("comes to named barrier ", number, " of ", threads,
                          " threads; numbers are ", kFirst, " to ", kLast,
                          ", threads whole warps of the block and the same for "
                          "all that meet; let them agree"));
    Abandon();
  }
  barrier.threads = threads;
  uint32_t& lanes = barrier.lanes[thread / kWarpLanes];
  lanes |= 1u << thread % kWarpLanes;
  if (lanes == ~0u) {
    order_.Release(thread / kWarpLanes, /*all_lanes=*/true, barrier.clock);
    lanes = 0;
  }
  if (wait) barrier.waiting.push_back(thread);
  barrier.any |= vote;
  if (++barrier.arrived < threads) {
    if (wait) {
      WarpOf(self).in_named_sync |= 1u << thread % kWarpLanes;
      Suspend(self);
    }
    return WarpOf(self).named_vote;
  }
  for (const int waiter : barrier.waiting) {
    order_.Acquire(waiter / kWarpLanes, barrier.clock);
    warps_[waiter / kWarpLanes].named_vote = barrier.any;
    warps_[waiter / kWarpLanes].in_named_sync &= ~(1u << waiter % kWarpLanes);
    schedule_.SetReady(waiter / kWarpLanes, 1u << waiter % kWarpLanes);
  }
  barrier = NamedBarrier();
  if (wait) Suspend(self);
  return WarpOf(self).named_vote;
}

void Block::Collective(Fiber& self, HostCollective op, uint32_t* operands) {
  Warp& warp = WarpOf(self);
  const int lane = self.thread.thread_index % kWarpLanes;
  const int first = self.thread.thread_index - lane;
  if (warp.exited != 0) {
    SetError(self,
             absl::StrCat(
                 "calls ", CollectiveName(op), " after thread ",
                 first + std::countr_zero(warp.exited),
                 " of its warp has exited; all 32 lanes take part in a warp "
                 "operation; let no lane leave before it"));
    Abandon();
  }
  if (warp.arrived == 0) {
    warp.op = op;
  } else if (warp.op != op) {
    SetError(
        self,
        absl::StrCat("calls ", CollectiveName(op), " while thread ",
                     first + std::countr_zero(warp.arrived),
                     " of its warp is in ", CollectiveName(warp.op),
                     "; all 32 lanes take part in the same warp operation; let "
                     "no lane branch around it"));
    Abandon();
  }
  warp.operands[lane] = operands;
  warp.arrived |= 1u << lane;
  if (warp.arrived == ~0u) {
    if (op == kLdMatrix4 || op == kLdMatrix4Trans) {
      LdMatrix(self, warp);
    } else if (op == kWarpSync) {
      order_.WarpSynced(first / kWarpLanes);
    } else if (op >= kWgmma) {
      RunProducts(self, warp);
    } else {
      RunRegisterOp(op, warp.operands);
    }
    warp.arrived = 0;
    schedule_.SetReady(first / kWarpLanes, ~0u);
  }
  Suspend(self);
}

void Block::LdMatrix(Fiber& self, Warp& warp) {
  constexpr int kRowBytes = 16;
  const int first = self.thread.thread_index / kWarpLanes * kWarpLanes;
  const unsigned char* rows[32];
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const uint32_t address = warp.operands[lane][0];
    Fiber& fiber = FiberAt(first + lane);
    rows[lane] = Shared(fiber, address, kRowBytes);
    if (rows[lane] == nullptr) {
      SetError(fiber, SharedFault(CollectiveName(warp.op), address, kRowBytes));
      Abandon();
    }
    const uint32_t offset = address - kHostSharedBase;
    CheckOrder(fiber, CollectiveName(warp.op), offset, kRowBytes,
               order_.Read(first + lane, offset, kRowBytes));
  }
  RunLdMatrix(warp.op, rows, warp.operands);
}

unsigned char* Block::Shared(Fiber& fiber, uint32_t address, uint32_t bytes) {
  const uint32_t offset = address - kHostSharedBase;
  const uint64_t end = static_cast<uint64_t>(offset) + bytes;
  if (address % bytes != 0 ||
      end > static_cast<uint64_t>(launch_.shared_bytes)) {
    return nullptr;
  }
  fiber.thread.shared_high_water =
      std::max(fiber.thread.shared_high_water, static_cast<uint32_t>(end));
  return arena_.get() + offset;
}

void Block::BadAccess(Fiber& self, HostAccess access, uint64_t address,
                      int bytes) {
  switch (access) {
    case kLoadGlobal:
      SetError(self, GlobalFault("LoadGlobal", address, bytes));
      break;
    case kStoreGlobal:
      SetError(self, GlobalFault("StoreGlobal", address, bytes));
      break;
    case kLoadShared:
      SetError(self, SharedFault("LoadShared", address, bytes));
      break;
    case kStoreShared:
      SetError(self, SharedFault("StoreShared", address, bytes));
      break;
  }
  Abandon();
}

std::string Block::GlobalFault(const char* op, uint64_t address, int bytes) {
  return absl::StrCat(op, " of ", bytes, " bytes at global address ",
                      Hex(address),
                      address == 0 ? ", which is null" : " is misaligned",
                      "; an access is aligned to its size; check the base and "
                      "the strides");
}

std::string Block::SharedFault(const char* op, uint64_t address,
                               int bytes) const {
  const uint64_t end = kHostSharedBase + launch_.shared_bytes;
  if (address < kHostSharedBase || address + bytes > end) {
    return absl::StrCat(op, " of ", bytes, " bytes at shared address ",
                        Hex(address), " is out of bounds; the arena has ",
                        launch_.shared_bytes, " bytes from ",
                        Hex(kHostSharedBase),
                        "; check the address and kvforge_shared_bytes");
  }
  return absl::StrCat(op, " of ", bytes, " bytes at shared address ",
                      Hex(address), " is misaligned",
                      "; an access is aligned to its size; check the address");
}

std::string Block::Waiting() const {
  std::vector<std::string> groups;
  const auto add = [&](int warp, uint32_t lanes, const char* op) {
    while (lanes != 0) {
      const int from = std::countr_zero(lanes);
      const int length = std::countr_one(lanes >> from);
      const int first = warp * kWarpLanes + from;
      groups.push_back(length == 1
                           ? absl::StrCat("thread ", first, " waits in ", op)
                           : absl::StrCat("threads ", first, " to ",
                                          first + length - 1, " wait in ", op));
      lanes = length == 32 ? 0 : lanes & ~(((1u << length) - 1) << from);
    }
  };
  for (int i = 0; i < warp_count_; ++i) {
    add(i, warps_[i].in_barrier, "BlockSync");
    add(i, warps_[i].in_part_sync, "PartSync");
    add(i, warps_[i].in_mbarrier, "MbarrierWait");
    add(i, warps_[i].in_named_sync, "NamedSync");
    add(i, warps_[i].arrived, CollectiveName(warps_[i].op));
  }
  constexpr size_t kShown = 8;
  const size_t count = groups.size();
  if (count > kShown) {
    groups.resize(kShown);
    groups.push_back(absl::StrCat("and ", count - kShown, " groups more"));
  }
  return absl::StrJoin(groups, ", ");
}

void Block::SetError(const Fiber& self, absl::string_view what) {
  status_ = absl::InternalError(
      absl::StrCat("host launch: thread ", self.thread.thread_index,
                   " of block ", self.thread.block_index, ": ", what));
}

void Block::Abandon() {
  FiberContext abandoned;
  SwitchFiber(&abandoned, main_);
  __builtin_unreachable();
}

}  // namespace kvforge
