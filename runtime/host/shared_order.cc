#include "runtime/host/shared_order.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kvforge {
namespace {

constexpr int kWarpLanes = 32;

std::string Unordered(const char* now, const char* before,
                      const std::string& who) {
  return absl::StrCat(now, " what ", who, " ", before,
                      ", and no barrier lies between; a BlockSync, or within a "
                      "warp a WarpSync, orders them; put one there");
}

}  // namespace

SharedOrder::SharedOrder(int shared_bytes, int warps)
    : warp_synced_(warps, 0),
      fenced_(warps * kWarpLanes, 0),
      known_(warps, Clock(warps + 1, 0)),
      bytes_(shared_bytes) {}

void SharedOrder::StartBlock() {
  block_start_ = block_synced_ = ++now_;
  for (Clock& clock : known_) std::fill(clock.begin(), clock.end(), 0);
}

void SharedOrder::PartSynced(int warps) {
  ++now_;
  Clock together(known_[0].size(), 0);
  for (int warp = 0; warp < warps; ++warp) {
    for (size_t i = 0; i < together.size(); ++i) {
      together[i] = std::max(together[i], known_[warp][i]);
    }
    together[warp] = warp_synced_[warp] = now_;
  }
  for (int warp = 0; warp < warps; ++warp) known_[warp] = together;
}

void SharedOrder::Release(int warp, bool all_lanes, Clock& clock) {
  clock.resize(known_[warp].size(), 0);
  for (size_t i = 0; i < clock.size(); ++i) {
    clock[i] = std::max(clock[i], known_[warp][i]);
  }
  const uint64_t until = all_lanes ? ++now_ : warp_synced_[warp];
  clock[warp] = std::max(clock[warp], until);
}

void SharedOrder::Acquire(int warp, const Clock& clock) {
  Clock& known = known_[warp];
  for (size_t i = 0; i < clock.size(); ++i) {
    known[i] = std::max(known[i], clock[i]);
  }
}

bool SharedOrder::Before(uint64_t then, int warp, int thread) const {
  if (!SinceBlockSync(then)) return true;
  const int mine = thread / kWarpLanes;
  if (then < known_[mine][warp]) return true;
  return warp == mine && then < warp_synced_[warp];
}

std::string SharedOrder::Name(int thread) const {
  return thread == engine() ? "a tensor copy" : absl::StrCat("thread ", thread);
}

bool SharedOrder::Fault(std::string fault) {
  fault_ = std::move(fault);
  return false;
}

uint64_t* SharedOrder::ReadTimes(Byte& byte) {
  const size_t warps = known_.size();
  if (byte.readers == kNone) {
    byte.readers = static_cast<int32_t>(read_times_.size() / warps);
    read_times_.resize(read_times_.size() + warps);
  }
  return &read_times_[byte.readers * warps];
}

bool SharedOrder::Read(int thread, uint32_t offset, uint32_t bytes) {
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
      return Fault(Unordered("reads", "wrote", Name(byte.writer)));
    }
    if (byte.reader == kNone || !SinceBlockSync(byte.read)) {
      byte.reader = thread;
    } else if (byte.reader != thread && byte.reader != kSeveralWarps) {
      const int reader_warp = byte.reader >= 0 ? byte.reader / kWarpLanes
                                               : kWarpReaders - byte.reader;
      if (reader_warp != warp) {
        // Readers that come before this one need no check any more.
        if (Before(byte.read, reader_warp, thread)) {
          byte.reader = thread;
        } else {
          byte.reader = kSeveralWarps;
          uint64_t* const times = ReadTimes(byte);
          std::fill_n(times, known_.size(), 0);
          times[reader_warp] = byte.read;
        }
      } else if (byte.read < warp_synced_[warp]) {
        byte.reader = thread;
      } else {
        byte.reader = kWarpReaders - warp;
      }
    }
    byte.read = now_;
    if (byte.reader == kSeveralWarps) ReadTimes(byte)[warp] = now_;
  }
  return true;
}

bool SharedOrder::ReadAsync(int thread, uint32_t offset, uint32_t bytes) {
  if (!Read(thread, offset, bytes)) return false;
  for (uint32_t i = offset; i < offset + bytes; ++i) {
    const Byte& byte = bytes_[i];
    if (byte.writer == engine() || byte.write < fenced_[byte.writer]) continue;
    return Fault(absl::StrCat(
        "reads what thread ", byte.writer,
        " wrote without an AsyncFence behind it; products do not see it; let "
        "that thread fence before the barrier"));
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
        return Fault(Unordered("writes", "wrote", Name(byte.writer)));
      }
    }
    if (byte.reader == kNone || !SinceBlockSync(byte.read) ||
        byte.reader == thread) {
      continue;
    }
    if (byte.reader == kSeveralWarps) {
      const uint64_t* const times = &read_times_[byte.readers * known_.size()];
      for (size_t warp = 0; warp < known_.size(); ++warp) {
        if (times[warp] != 0 &&
            !Before(times[warp], static_cast<int>(warp), thread)) {
          return Fault(
              "writes what threads of several warps read, and no barrier lies "
              "between; a BlockSync orders them; put one there");
        }
      }
      continue;
    }
    const int warp = byte.reader >= 0 ? byte.reader / kWarpLanes
                                      : kWarpReaders - byte.reader;
    if (!Before(byte.read, warp, thread)) {
      return Fault(
          Unordered("writes", "read",
                    Name(byte.reader >= 0 ? byte.reader : warp * kWarpLanes)));
    }
  }
  return true;
}

void SharedOrder::Record(int thread, uint32_t offset, uint32_t bytes,
                         bool in_flight) {
  for (uint32_t i = offset; i < offset + bytes; ++i) {
    bytes_[i].write = now_;
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

void SharedOrder::LandCopyAtBarrier(uint32_t offset, uint32_t bytes) {
  for (uint32_t i = offset; i < offset + bytes; ++i) {
    bytes_[i].in_flight = false;
  }
}

void SharedOrder::LandTensorCopy(uint32_t offset, uint32_t bytes,
                                 Clock& clock) {
  Record(engine(), offset, bytes, /*in_flight=*/false);
  clock.resize(known_[0].size(), 0);
  clock.back() = ++now_;
}

}  // namespace kvforge
