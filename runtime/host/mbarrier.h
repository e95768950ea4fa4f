// One mbarrier of a block: a phase ends when as many threads have arrived as it
// was made for and as many bytes of tensor copies have come as were expected,
// and lands the copies that were under way then.
#ifndef KVFORGE_RUNTIME_HOST_MBARRIER_H_
#define KVFORGE_RUNTIME_HOST_MBARRIER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/host/async_copies.h"
#include "runtime/host/schedule.h"
#include "runtime/host/shared_order.h"

namespace kvforge {

struct Mbarrier {
  int count = 0;          // arrivals of a phase
  int arrived = 0;        // in the phase that runs
  int64_t bytes_due = 0;  // expected and not copied
  uint32_t phase = 0;
  uint32_t lanes[kMaxWarps] = {};  // that have arrived
  // What comes before the end of the phase that runs, and of the last one.
  SharedOrder::Clock clock;
  SharedOrder::Clock ended;
  std::vector<AsyncCopies::Copy> copies;
  std::vector<AsyncCopies::Copy> tensor_copies;
  std::vector<int> waiting;  // threads, for the phase that runs

  bool PhaseEnded(uint32_t parity) const { return (phase & 1) != parity; }

  void EndPhase() {
    ++phase;
    arrived = 0;
    for (uint32_t& lane_mask : lanes) lane_mask = 0;
    ended = std::move(clock);
    clock.clear();
    copies.clear();
    tensor_copies.clear();
    waiting.clear();
  }
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_HOST_MBARRIER_H_
