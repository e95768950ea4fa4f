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
constexpr unsigned char kPoison = 0xff;
constexpr uint32_t kTensorCopyAlignment = 128;

std::string Hex(uint64_t address) {
  return absl::StrCat("0x", absl::Hex(address));
}

}  // namespace

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
      warps_(warp_count_) {
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
  for (int i = 0; i < launch_.block_threads; ++i) {
    fibers_[i]->thread.block_index = block_index;
    fibers_[i]->context = MakeFiber(stacks_.Thread(i), stacks_.UsableBytes(i),
                                    FiberMain, fibers_[i]);
    copies_[i].Clear();
  }
  for (int warp = 0; warp < warp_count_; ++warp) {
    warps_[warp] = Warp();
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
  SetError(self,
           absl::StrCat(op, " of ", bytes, " bytes at shared address ",
                        Hex(kHostSharedBase + offset), " ", order_.fault()));
  Abandon();
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

void Block::MbarrierInit(Fiber& self, uint32_t barrier, int count) {
  constexpr int kBytes = 8;
  if (Shared(self, barrier, kBytes) == nullptr) {
    SetError(self, SharedFault("MbarrierInit", barrier, kBytes));
    Abandon();
  }
  const uint32_t offset = barrier - kHostSharedBase;
  if (count <= 0) {
    SetError(self, absl::StrCat("MbarrierInit with a count of ", count,
                                "; it is 1 or more; pass the number of "
                                "arrivals of a phase"));
    Abandon();
  }
  CheckOrder(self, "MbarrierInit", offset, kBytes,
             order_.Write(self.thread.thread_index, offset, kBytes));
  mbarriers_[offset] = Mbarrier{.count = count};
}

Mbarrier& Block::MbarrierAt(Fiber& self, const char* op, uint32_t barrier) {
  constexpr int kBytes = 8;
  const uint32_t offset = barrier - kHostSharedBase;
  const auto found = mbarriers_.find(offset);
  if (found == mbarriers_.end()) {
    SetError(self, absl::StrCat(op, " at shared address ", Hex(barrier),
                                ", where no mbarrier was made; MbarrierInit "
                                "comes first; check the address"));
    Abandon();
  }
  // Only the making of it writes these bytes.
  CheckOrder(self, op, offset, kBytes,
             order_.Read(self.thread.thread_index, offset, kBytes));
  return found->second;
}

void Block::MbarrierArrive(Fiber& self, uint32_t barrier, bool with_copies) {
  const char* op = with_copies ? "CpAsyncArrive" : "MbarrierArrive";
  Mbarrier& mbarrier = MbarrierAt(self, op, barrier);
  const int thread = self.thread.thread_index;
  const int warp = thread / kWarpLanes;
  if (with_copies) {
    for (const AsyncCopies::Copy& copy : copies_[thread].TakeAll()) {
      mbarrier.copies.push_back(copy);
    }
  }
  uint32_t& lanes = mbarrier.lanes[warp];
  lanes |= 1u << thread % kWarpLanes;
  order_.Release(warp, /*all_lanes=*/lanes == ~0u, mbarrier.clock);
  ++mbarrier.arrived;
  EndPhaseIfComplete(mbarrier);
}

void Block::EndPhaseIfComplete(Mbarrier& mbarrier) {
  if (mbarrier.arrived < mbarrier.count || mbarrier.bytes_due != 0) return;
  for (const AsyncCopies::Copy& copy : mbarrier.copies) {
    AsyncCopies::Land(copy);
    order_.LandCopyAtBarrier(
        static_cast<uint32_t>(copy.destination - arena_.get()), copy.bytes);
  }
  for (const AsyncCopies::Copy& copy : mbarrier.tensor_copies) {
    AsyncCopies::Land(copy);
    order_.LandTensorCopy(
        static_cast<uint32_t>(copy.destination - arena_.get()), copy.bytes,
        mbarrier.clock);
  }
  for (const int waiter : mbarrier.waiting) {
    warps_[waiter / kWarpLanes].in_mbarrier &= ~(1u << waiter % kWarpLanes);
    schedule_.SetReady(waiter / kWarpLanes, 1u << waiter % kWarpLanes);
  }
  mbarrier.EndPhase();
}

void Block::MbarrierExpect(Fiber& self, uint32_t barrier, uint32_t bytes) {
  Mbarrier& mbarrier = MbarrierAt(self, "ExpectBytes", barrier);
  mbarrier.bytes_due += bytes;
  EndPhaseIfComplete(mbarrier);
}

void Block::TensorCopy(Fiber& self, uint32_t shared, const HostTensorMap& map,
                       const int* at, uint32_t barrier) {
  constexpr int kUnit = 16;
  Mbarrier& mbarrier = MbarrierAt(self, "TensorCopy", barrier);
  const int64_t bytes =
      int64_t{map.box[0]} * map.box[1] * map.box[2] * map.box[3] * map.box[4];
  const int thread = self.thread.thread_index;
  const uint32_t offset = shared - kHostSharedBase;
  const uint32_t lines = map.swizzle_bytes == 128  ? 7
                         : map.swizzle_bytes == 64 ? 3
                                                   : 0;
  if (shared % kTensorCopyAlignment != 0 ||
      int64_t{offset} + bytes > launch_.shared_bytes) {
    SetError(self, SharedFault("TensorCopy", shared, static_cast<int>(bytes)));
    Abandon();
  }
  self.thread.shared_high_water = std::max(
      self.thread.shared_high_water, static_cast<uint32_t>(offset + bytes));
  for (int64_t first = 0; first < bytes; first += kUnit) {
    int64_t rest = first;
    const unsigned char* source = map.base;
    bool inside = true;
    for (int i = 0; i < 5; ++i) {
      const int64_t coordinate = at[i] + rest % map.box[i];
      rest /= map.box[i];
      inside &= coordinate >= 0 && coordinate < map.sizes[i];
      source +=
          coordinate * static_cast<int64_t>(i == 0 ? 1 : map.strides[i - 1]);
    }
    const uint32_t address = shared + static_cast<uint32_t>(first);
    const uint32_t to =
        (address ^ ((address >> 7 & lines) << 4)) - kHostSharedBase;
    CheckOrder(self, "TensorCopy", to, kUnit,
               order_.IssueCopy(thread, to, kUnit));
    std::memset(arena_.get() + to, kPoison, kUnit);
    // Outside of the array: zeros.
    mbarrier.tensor_copies.push_back(
        {arena_.get() + to, inside ? source : nullptr, kUnit});
  }
  mbarrier.bytes_due -= bytes;
  EndPhaseIfComplete(mbarrier);
}

void Block::MbarrierWait(Fiber& self, uint32_t barrier, uint32_t parity) {
  Mbarrier& mbarrier = MbarrierAt(self, "MbarrierWait", barrier);
  const int thread = self.thread.thread_index;
  if (!mbarrier.PhaseEnded(parity)) {
    mbarrier.waiting.push_back(thread);
    WarpOf(self).in_mbarrier |= 1u << thread % kWarpLanes;
    Suspend(self);
  }
  order_.Acquire(thread / kWarpLanes, mbarrier.ended);
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

void Block::CpAsync(Fiber& self, uint32_t shared, const void* global, int bytes,
                    bool valid) {
  const uint64_t source = reinterpret_cast<uintptr_t>(global);
  if (source % bytes != 0 || (valid && source == 0)) {
    SetError(self, GlobalFault("CpAsync", source, bytes));
    Abandon();
  }
  unsigned char* const destination = Shared(self, shared, bytes);
  if (destination == nullptr) {
    SetError(self, SharedFault("CpAsync", shared, bytes));
    Abandon();
  }
  const uint32_t offset = shared - kHostSharedBase;
  CheckOrder(self, "CpAsync", offset, bytes,
             order_.IssueCopy(self.thread.thread_index, offset, bytes));
  std::memset(destination, kPoison, bytes);
  copies_[self.thread.thread_index].Add(
      {destination, valid ? global : nullptr, bytes});
}

void Block::CpAsyncCommit(Fiber& self) {
  copies_[self.thread.thread_index].Commit();
}

void Block::CpAsyncWait(Fiber& self, int pending) {
  const int thread = self.thread.thread_index;
  copies_[thread].Wait(pending, [&](const AsyncCopies::Copy& copy) {
    order_.LandCopy(thread,
                    static_cast<uint32_t>(copy.destination - arena_.get()),
                    copy.bytes);
  });
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
