// Times of kernels on a GPU, by events.
#ifndef KVFORGE_TOOLS_BENCH_TIMING_H_
#define KVFORGE_TOOLS_BENCH_TIMING_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda/stream.h"
#include "tools/bench/statistics.h"

namespace kvforge::bench {

// Queues one launch over the inputs of number `index`, which the callee takes
// modulo the inputs there are.
using LaunchFunction =
    std::function<absl::Status(int64_t index, CuStream stream)>;

struct Timing {
  Summary one;  // microseconds of single launches, each between two events
  Summary row;  // of launches in a row in one graph, divided by their number
};

// How many launches in a row make their inputs, `launch_bytes` each, four times
// the L2 cache; within bounds that keep a case under a second.
int RowLaunches(int64_t launch_bytes, int64_t l2_bytes, double launch_us);

class Timer {
 public:
  static absl::StatusOr<Timer> Create(DevicePtr device);

  // Warms up, then measures both. Waits until all is done.
  absl::StatusOr<Timing> Measure(const LaunchFunction& launch,
                                 int64_t launch_bytes);
  // Single launches only.
  absl::StatusOr<Summary> MeasureOne(const LaunchFunction& launch);
  CuStream stream() const { return stream_.get(); }

 private:
  absl::StatusOr<double> Microseconds(
      const std::function<absl::Status()>& queue);

  DevicePtr device_;
  Stream stream_;
  Event start_, end_;
};

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_TIMING_H_
