#include "tools/bench/timing.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"

namespace kvforge::bench {
namespace {

constexpr int kWarmUps = 3;
constexpr int kSingles = 31;
constexpr int kRows = 9;  // timed replays of the graph

constexpr int kRowLaunches = 20;
constexpr int kMostRowLaunches = 256;
constexpr int kFewestRowLaunches = 5;
constexpr double kRowMicroseconds = 20e3;  // of one replay, about

}  // namespace

int RowLaunches(int64_t launch_bytes, int64_t l2_bytes, double launch_us) {
  int64_t launches = kRowLaunches;
  if (launch_bytes > 0) {
    launches = std::clamp<int64_t>(4 * l2_bytes / launch_bytes, kRowLaunches,
                                   kMostRowLaunches);
  }
  if (launch_us > 0) {
    launches =
        std::min(launches, static_cast<int64_t>(kRowMicroseconds / launch_us));
  }
  return static_cast<int>(std::max<int64_t>(launches, kFewestRowLaunches));
}

absl::StatusOr<Timer> Timer::Create(DevicePtr device) {
  Timer timer;
  ASSIGN_OR_RETURN(timer.stream_, Stream::Create(device));
  ASSIGN_OR_RETURN(timer.start_, Event::Create(device));
  ASSIGN_OR_RETURN(timer.end_, Event::Create(device));
  timer.device_ = std::move(device);
  return timer;
}

absl::StatusOr<double> Timer::Microseconds(
    const std::function<absl::Status()>& queue) {
  RETURN_IF_ERROR(start_.Record(stream_.get()));
  RETURN_IF_ERROR(queue());
  RETURN_IF_ERROR(end_.Record(stream_.get()));
  RETURN_IF_ERROR(end_.Synchronize());
  ASSIGN_OR_RETURN(const float milliseconds, end_.MillisecondsSince(start_));
  return 1e3 * milliseconds;
}

absl::StatusOr<Summary> Timer::MeasureOne(const LaunchFunction& launch) {
  int64_t index = 0;
  std::vector<double> samples;
  for (int i = 0; i < kWarmUps + kSingles; ++i) {
    ASSIGN_OR_RETURN(const double us, Microseconds([&] {
                       return launch(index++, stream_.get());
                     }));
    if (i >= kWarmUps) samples.push_back(us);
  }
  return Summarise(std::move(samples));
}

absl::StatusOr<Timing> Timer::Measure(const LaunchFunction& launch,
                                      int64_t launch_bytes) {
  Timing timing;
  ASSIGN_OR_RETURN(timing.one, MeasureOne(launch));
  const int launches =
      RowLaunches(launch_bytes, device_->limits().l2_bytes, timing.one.median);
  RETURN_IF_ERROR(stream_.BeginCapture());
  absl::Status captured;
  for (int i = 0; i < launches && captured.ok(); ++i) {
    captured = launch(i, stream_.get());
  }
  // Capturing must end whatever happened in it.
  absl::StatusOr<Graph> graph = stream_.EndCapture();
  RETURN_IF_ERROR(captured);
  RETURN_IF_ERROR(graph.status());
  std::vector<double> samples;
  for (int i = 0; i <= kRows; ++i) {
    ASSIGN_OR_RETURN(const double us, Microseconds([&] {
                       return graph->Launch(stream_.get());
                     }));
    if (i > 0) samples.push_back(us / launches);
  }
  timing.row = Summarise(std::move(samples));
  return timing;
}

}  // namespace kvforge::bench
