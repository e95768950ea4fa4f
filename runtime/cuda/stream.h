// Streams, events and captured graphs with owners.
#ifndef KVFORGE_RUNTIME_CUDA_STREAM_H_
#define KVFORGE_RUNTIME_CUDA_STREAM_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/driver_api.h"

namespace kvforge {

// Whether work queued on `stream` is being captured into a graph. False for the
// null stream while another stream captures is the driver's error instead,
// passed on.
absl::StatusOr<bool> IsCapturing(const Device& device, CuStream stream);

// Waits for a stream that anyone owns.
absl::Status Synchronize(const Device& device, CuStream stream);

// A graph ready to launch.
class Graph {
 public:
  Graph() = default;
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  ~Graph();
  absl::Status Launch(CuStream stream) const;

 private:
  friend class Stream;
  Graph(DevicePtr device, CuGraphExec exec)
      : device_(std::move(device)), exec_(exec) {}
  void Destroy();

  DevicePtr device_;
  CuGraphExec exec_ = nullptr;
};

// A stream that does not wait for the null stream.
class Stream {
 public:
  static absl::StatusOr<Stream> Create(DevicePtr device);
  Stream() = default;
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();

  CuStream get() const { return stream_; }
  absl::Status Synchronize() const;
  // Between the two, work queued on this stream is recorded, not run.
  absl::Status BeginCapture();
  absl::StatusOr<Graph> EndCapture();

 private:
  void Destroy();

  DevicePtr device_;
  CuStream stream_ = nullptr;
};

// A point in a stream, with a time.
class Event {
 public:
  static absl::StatusOr<Event> Create(DevicePtr device);
  Event() = default;
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  absl::Status Record(CuStream stream);
  absl::Status Synchronize() const;
  // Milliseconds from `start` to this event; both must have happened.
  absl::StatusOr<float> MillisecondsSince(const Event& start) const;

 private:
  void Destroy();

  DevicePtr device_;
  CuEvent event_ = nullptr;
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CUDA_STREAM_H_
