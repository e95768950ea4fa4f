#include "runtime/host/shared_order.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace kvforge {
namespace {

constexpr int kWarpLanes = 32;

std::string Unordered(const char* now, const char* before, int thread) {
  return absl::StrCat(now, " what thread ", thread, " ", before,
                      ", and no barrier lies between; a BlockSync, or within a "
                      "warp a WarpSync, orders them; put one there");
}

}  // namespace

SharedOrder::SharedOrder(int shared_bytes, int warps)
    : warp_epochs_(warps, 0), bytes_(shared_bytes) {}

void SharedOrder::StartBlock() { first_epoch_ = ++block_epoch_; }

bool SharedOrder::Before(const Stamp& then, int warp, int thread) const {
  return then.block_epoch < block_epoch_ ||
         (warp == thread / kWarpLanes && then.warp_epoch < warp_epochs_[warp]);
}

bool SharedOrder::Fault(std::string fault) {
  fault_ = std::move(fault);
  return false;
}

bool SharedOrder::Read(int thread, uint32_t offset, uint32_t bytes) {
  const Stamp now = Now(thread);
  const int warp = thread / kWarpLanes;
  for (uint32_t i = offset; i < offset + bytes; ++i) {
    Byte& byte = bytes_[i];
    if (!Written(byte)) {
      return Fault(
          "reads bytes that nothing wrote in this block; shared memory "
          "holds no values at start; write them first");
    }
    if (byte.in_flight) {
      return Fault(absl::StrCat(
          "reads bytes of an asynchronous copy of thread ", byte.writer,
          " that has not landed; a wait of that thread, then a barrier for the "
          "others, comes first; wait for its group"));
    }
    if (byte.writer != thread &&
        !Before(byte.write, byte.writer / kWarpLanes, thread)) {
      return Fault(Unordered("reads", "wrote", byte.writer));
    }
    if (byte.reader == kNone || byte.read.block_epoch < now.block_epoch) {
      byte.reader = thread;
    } else if (byte.reader != thread && byte.reader != kSeveralWarps) {
      const int reader_warp = byte.reader >= 0 ? byte.reader / kWarpLanes
                                               : kWarpReaders - byte.reader;
      if (reader_warp != warp) {
        byte.reader = kSeveralWarps;
      } else if (byte.read.warp_epoch < now.warp_epoch) {
        byte.reader = thread;
      } else {
        byte.reader = kWarpReaders - warp;
      }
    }
    byte.read = now;
  }
  return true;
}

bool SharedOrder::CheckWrite(int thread, uint32_t offset, uint32_t bytes) {
  for (uint32_t i = offset; i < offset + bytes; ++i) {
    const Byte& byte = bytes_[i];
    if (Written(byte)) {
      if (byte.in_flight) {
        return Fault(absl::StrCat(
            "writes bytes of an asynchronous copy of thread ", byte.writer,
            " that has not landed; a wait comes first; wait for its group"));
      }
      if (byte.writer != thread &&
          !Before(byte.write, byte.writer / kWarpLanes, thread)) {
        return Fault(Unordered("writes", "wrote", byte.writer));
      }
    }
    if (byte.reader == kNone || byte.read.block_epoch < block_epoch_ ||
        byte.reader == thread) {
      continue;
    }
    if (byte.reader == kSeveralWarps) {
      return Fault(
          "writes what threads of several warps read, and no barrier lies "
          "between; a BlockSync orders them; put one there");
    }
    const int warp = byte.reader >= 0 ? byte.reader / kWarpLanes
                                      : kWarpReaders - byte.reader;
    if (!Before(byte.read, warp, thread)) {
      return Fault(
          Unordered("writes", "read",
                    byte.reader >= 0 ? byte.reader : warp * kWarpLanes));
    }
  }
  return true;
}

void SharedOrder::Record(int thread, uint32_t offset, uint32_t bytes,
                         bool in_flight) {
  const Stamp now = Now(thread);
  for (uint32_t i = offset; i < offset + bytes; ++i) {
    bytes_[i].write = now;
    bytes_[i].writer = thread;
    bytes_[i].in_flight = in_flight;
  }
}

bool SharedOrder::Write(int thread, uint32_t offset, uint32_t bytes) {
  if (!CheckWrite(thread, offset, bytes)) return false;
  Record(thread, offset, bytes, /*in_flight=*/false);
  return true;
}

bool SharedOrder::IssueCopy(int thread, uint32_t offset, uint32_t bytes) {
  if (!CheckWrite(thread, offset, bytes)) return false;
  Record(thread, offset, bytes, /*in_flight=*/true);
  return true;
}

void SharedOrder::LandCopy(int thread, uint32_t offset, uint32_t bytes) {
  Record(thread, offset, bytes, /*in_flight=*/false);
}

}  // namespace kvforge
