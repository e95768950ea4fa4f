#include "runtime/cuda/stream.h"

#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr unsigned kStreamNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr int kCaptureModeThreadLocal = 1;  // of CUstreamCaptureMode
constexpr int kCaptureStatusNone = 0;       // of CUstreamCaptureStatus

}  // namespace

absl::StatusOr<bool> IsCapturing(const Device& device, CuStream stream) {
  const ScopedContext context(device);
  RETURN_IF_ERROR(context.status());
  int status = kCaptureStatusNone;
  RETURN_IF_ERROR(device.api().Check(
      device.api().StreamIsCapturing(stream, &status), "cuStreamIsCapturing"));
  return status != kCaptureStatusNone;
}

absl::Status Synchronize(const Device& device, CuStream stream) {
  const ScopedContext context(device);
  RETURN_IF_ERROR(context.status());
  return device.api().Check(device.api().StreamSynchronize(stream),
                            "cuStreamSynchronize");
}

Graph::Graph(Graph&& other) noexcept
    : device_(std::move(other.device_)),
      exec_(std::exchange(other.exec_, nullptr)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  if (this != &other) {
    Destroy();
    device_ = std::move(other.device_);
    exec_ = std::exchange(other.exec_, nullptr);
  }
  return *this;
}

Graph::~Graph() { Destroy(); }

void Graph::Destroy() {
  if (exec_ == nullptr) return;
  const ScopedContext context(*device_);
  if (context.status().ok()) device_->api().GraphExecDestroy(exec_);
  exec_ = nullptr;
}

absl::Status Graph::Launch(CuStream stream) const {
  const ScopedContext context(*device_);
  RETURN_IF_ERROR(context.status());
  return device_->api().Check(device_->api().GraphLaunch(exec_, stream),
                              "cuGraphLaunch");
}

absl::StatusOr<Stream> Stream::Create(DevicePtr device) {
  const ScopedContext context(*device);
  RETURN_IF_ERROR(context.status());
  Stream stream;
  RETURN_IF_ERROR(device->api().Check(
      device->api().StreamCreate(&stream.stream_, kStreamNonBlocking),
      "cuStreamCreate"));
  stream.device_ = std::move(device);
  return stream;
}

Stream::Stream(Stream&& other) noexcept
    : device_(std::move(other.device_)),
      stream_(std::exchange(other.stream_, nullptr)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  if (this != &other) {
    Destroy();
    device_ = std::move(other.device_);
    stream_ = std::exchange(other.stream_, nullptr);
  }
  return *this;
}

Stream::~Stream() { Destroy(); }

void Stream::Destroy() {
  if (stream_ == nullptr) return;
  const ScopedContext context(*device_);
  if (context.status().ok()) device_->api().StreamDestroy(stream_);
  stream_ = nullptr;
}

absl::Status Stream::Synchronize() const {
  return kvforge::Synchronize(*device_, stream_);
}

absl::Status Stream::BeginCapture() {
  const ScopedContext context(*device_);
  RETURN_IF_ERROR(context.status());
  return device_->api().Check(
      device_->api().StreamBeginCapture(stream_, kCaptureModeThreadLocal),
      "cuStreamBeginCapture");
}

absl::StatusOr<Graph> Stream::EndCapture() {
  const ScopedContext context(*device_);
  RETURN_IF_ERROR(context.status());
  const DriverApi& api = device_->api();
  CuGraph graph = nullptr;
  RETURN_IF_ERROR(
      api.Check(api.StreamEndCapture(stream_, &graph), "cuStreamEndCapture"));
  CuGraphExec exec = nullptr;
  const int result = api.GraphInstantiate(&exec, graph, 0);
  api.GraphDestroy(graph);
  RETURN_IF_ERROR(api.Check(result, "cuGraphInstantiate"));
  return Graph(device_, exec);
}

absl::StatusOr<Event> Event::Create(DevicePtr device) {
  const ScopedContext context(*device);
  RETURN_IF_ERROR(context.status());
  Event event;
  RETURN_IF_ERROR(device->api().Check(
      device->api().EventCreate(&event.event_, 0), "cuEventCreate"));
  event.device_ = std::move(device);
  return event;
}

Event::Event(Event&& other) noexcept
    : device_(std::move(other.device_)),
      event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  if (this != &other) {
    Destroy();
    device_ = std::move(other.device_);
    event_ = std::exchange(other.event_, nullptr);
  }
  return *this;
}

Event::~Event() { Destroy(); }

void Event::Destroy() {
  if (event_ == nullptr) return;
  const ScopedContext context(*device_);
  if (context.status().ok()) device_->api().EventDestroy(event_);
  event_ = nullptr;
}

absl::Status Event::Record(CuStream stream) {
  const ScopedContext context(*device_);
  RETURN_IF_ERROR(context.status());
  return device_->api().Check(device_->api().EventRecord(event_, stream),
                              "cuEventRecord");
}

absl::Status Event::Synchronize() const {
  const ScopedContext context(*device_);
  RETURN_IF_ERROR(context.status());
  return device_->api().Check(device_->api().EventSynchronize(event_),
                              "cuEventSynchronize");
}

absl::StatusOr<float> Event::MillisecondsSince(const Event& start) const {
  const ScopedContext context(*device_);
  RETURN_IF_ERROR(context.status());
  float milliseconds = 0;
  RETURN_IF_ERROR(device_->api().Check(
      device_->api().EventElapsedTime(&milliseconds, start.event_, event_),
      "cuEventElapsedTime"));
  return milliseconds;
}

}  // namespace kvforge
