// What runs on its own while a block goes on: asynchronous copies, the
// mbarriers that wait for them, and the products of warpgroups.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/host/block.h"

namespace kvforge {
namespace {

constexpr int kCopyUnit = 16;  // bytes of bulk and tensor copies
constexpr uint32_t kTensorCopyAlignment = 128;

}  // namespace

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
  for (int64_t first = 0; first < bytes; first += kCopyUnit) {
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
    CheckOrder(self, "TensorCopy", to, kCopyUnit,
               order_.IssueCopy(thread, to, kCopyUnit));
    std::memset(arena_.get() + to, kPoison, kCopyUnit);
    // Outside of the array: zeros.
    mbarrier.tensor_copies.push_back(
        {arena_.get() + to, inside ? source : nullptr, kCopyUnit});
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

void Block::BulkCopy(Fiber& self, uint32_t shared, const void* global,
                     uint32_t bytes, uint32_t barrier) {
  Mbarrier& mbarrier = MbarrierAt(self, "BulkCopy", barrier);
  const uint64_t source = reinterpret_cast<uintptr_t>(global);
  const uint32_t offset = shared - kHostSharedBase;
  if (source % kCopyUnit != 0 || source == 0) {
    SetError(self, GlobalFault("BulkCopy", source, kCopyUnit));
    Abandon();
  }
  if (shared % kCopyUnit != 0 || bytes % kCopyUnit != 0 || bytes == 0 ||
      uint64_t{offset} + bytes > static_cast<uint64_t>(launch_.shared_bytes)) {
    SetError(self, SharedFault("BulkCopy", shared, static_cast<int>(bytes)));
    Abandon();
  }
  self.thread.shared_high_water =
      std::max(self.thread.shared_high_water, offset + bytes);
  CheckOrder(self, "BulkCopy", offset, static_cast<int>(bytes),
             order_.IssueCopy(self.thread.thread_index, offset, bytes));
  std::memset(arena_.get() + offset, kPoison, bytes);
  mbarrier.tensor_copies.push_back(
      {arena_.get() + offset, global, static_cast<int>(bytes)});
  mbarrier.bytes_due -= bytes;
  EndPhaseIfComplete(mbarrier);
}

void Block::AsyncFence(Fiber& self) { order_.Fenced(self.thread.thread_index); }

void Block::RunProducts(Fiber& self, Warp& warp) {
  const int index = self.thread.thread_index / kWarpLanes;
  WarpProducts& products = products_[index];
  switch (warp.op) {
    case kWgmmaBegin:
      return products.Begin();
    case kWgmmaCommit:
      return products.Commit();
    case kWgmma: {
      if (!products.begun()) {
        SetError(self,
                 "asks for a product without a WgmmaBegin since the last wait; "
                 "registers written before need one; put it ahead");
        Abandon();
      }
      const HostProduct* requests[kWarpLanes];
      for (int lane = 0; lane < kWarpLanes; ++lane) {
        requests[lane] =
            reinterpret_cast<const HostProduct*>(warp.operands[lane]);
      }
      return products.Add(requests);
    }
    default: {
      const auto chunk = [&](uint32_t address) -> const unsigned char* {
        const unsigned char* const bytes = Shared(self, address, kCopyUnit);
        const uint32_t offset = address - kHostSharedBase;
        if (bytes == nullptr) {
          SetError(self, SharedFault("Wgmma", address, kCopyUnit));
        } else if (!order_.ReadAsync(self.thread.thread_index, offset,
                                     kCopyUnit)) {
          SetOrderError(self, "Wgmma", offset, kCopyUnit);
          return nullptr;
        }
        return bytes;
      };
      if (!products.Wait(warp.operands[0][0], index % kGroupWarps, chunk)) {
        Abandon();
      }
    }
  }
}

void Block::CheckProductsDone(Fiber& self) {
  const int warp = self.thread.thread_index / kWarpLanes;
  if (products_[warp].not_done() != 0) {
    SetError(self, absl::StrCat("exits with ", products_[warp].not_done(),
                                " products that no wait covers; all end before "
                                "the kernel does; commit and wait for them"));
    Abandon();
  }
  // Only when the last warp of the group leaves have all asked for theirs.
  const int first = warp / kGroupWarps * kGroupWarps;
  for (int other = first; other < first + kGroupWarps; ++other) {
    const bool left = other >= warp_count_ || warps_[other].exited != 0;
    const uint64_t asked = other >= warp_count_ ? 0 : products_[other].asked();
    if (left && asked != products_[warp].asked()) {
      SetError(self, absl::StrCat(
                         "exits after ", products_[warp].asked(),
                         " products, and warp ", other,
                         " of its warpgroup has ", asked,
                         "; all four warps take part in each; let none branch "
                         "around one"));
      Abandon();
    }
  }
}

}  // namespace kvforge
