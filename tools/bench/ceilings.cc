#include "tools/bench/ceilings.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/target_memory.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/random_fill.h"

namespace kvforge::bench {
namespace {

constexpr int64_t kStreamBytes = int64_t{2} << 30;
constexpr int64_t kPointBytes[] = {int64_t{2} << 20,   int64_t{8} << 20,
                                   int64_t{32} << 20,  int64_t{128} << 20,
                                   int64_t{512} << 20, kStreamBytes};
constexpr int kReadThreads = 512;  // of ceiling.ptx
constexpr int kReadBlocksPerSm[] = {2, 4, 8};
constexpr int kPointBlocksPerSm = 4;

constexpr int kMmaThreads = 256;
constexpr int kMmaBlocksPerSm = 2;
constexpr int kMmaRounds = 20000;
constexpr double kMmaRoundFlops = 8 * 2.0 * 16 * 8 * 16;  // a warp

CuDevicePtr Address(const TargetBuffer& buffer) {
  return reinterpret_cast<CuDevicePtr>(buffer.data());
}

// One of the kernels of ceiling.ptx.
class PtxKernel {
 public:
  static absl::StatusOr<std::unique_ptr<PtxKernel>> Load(DevicePtr device,
                                                         const char* name) {
    const ScopedContext context(*device);
    RETURN_IF_ERROR(context.status());
    const DriverApi& api = device->api();
    std::unique_ptr<PtxKernel> kernel(new PtxKernel(std::move(device)));
    RETURN_IF_ERROR(
        api.Check(api.LibraryLoadData(&kernel->library_, CeilingPtx(), nullptr,
                                      nullptr, 0, nullptr, nullptr, 0),
                  "cuLibraryLoadData of ceiling.ptx"));
    CuKernel handle = nullptr;
    RETURN_IF_ERROR(
        api.Check(api.LibraryGetKernel(&handle, kernel->library_, name),
                  absl::StrCat("cuLibraryGetKernel(", name, ")")));
    RETURN_IF_ERROR(api.Check(api.KernelGetFunction(&kernel->function_, handle),
                              absl::StrCat("cuKernelGetFunction(", name, ")")));
    return kernel;
  }

  ~PtxKernel() {
    const ScopedContext context(*device_);
    if (library_ != nullptr && context.status().ok()) {
      device_->api().LibraryUnload(library_);
    }
  }

  absl::Status Launch(int blocks, int threads, CuStream stream,
                      void** parameters) const {
    const ScopedContext context(*device_);
    RETURN_IF_ERROR(context.status());
    const DriverApi& api = device_->api();
    return api.Check(api.LaunchKernel(function_, static_cast<unsigned>(blocks),
                                      1, 1, static_cast<unsigned>(threads), 1,
                                      1, 0, stream, parameters, nullptr),
                     "cuLaunchKernel of ceiling.ptx");
  }

 private:
  explicit PtxKernel(DevicePtr device) : device_(std::move(device)) {}

  DevicePtr device_;
  CuLibrary library_ = nullptr;
  CuFunction function_ = nullptr;
};

double GbPerS(int64_t bytes, const Summary& us) {
  return us.median > 0 ? static_cast<double>(bytes) / us.median / 1e3 : 0;
}

absl::StatusOr<double> MeasureRead(const PtxKernel& kernel,
                                   const TargetBuffer& buffer,
                                   const TargetBuffer& sink, int blocks,
                                   int64_t bytes, Timer& timer) {
  const int64_t places = kStreamBytes / bytes;
  const auto launch = [&](int64_t index, CuStream stream) {
    CuDevicePtr from = Address(buffer) + index % places * bytes;
    unsigned long long words = bytes / 16;
    CuDevicePtr to = Address(sink);
    void* parameters[] = {&from, &words, &to};
    return kernel.Launch(blocks, kReadThreads, stream, parameters);
  };
  ASSIGN_OR_RETURN(const Summary us, timer.MeasureOne(launch));
  return GbPerS(bytes, us);
}

absl::Status MeasureStream(const DevicePtr& device, const TargetBuffer& buffer,
                           const TargetBuffer& sink, Timer& timer,
                           Ceilings& ceilings) {
  ASSIGN_OR_RETURN(const std::unique_ptr<PtxKernel> kernel,
                   PtxKernel::Load(device, "kvforge_read_stream"));
  const int sms = device->limits().sm_count;
  for (const int blocks : kReadBlocksPerSm) {
    ASSIGN_OR_RETURN(
        const double rate,
        MeasureRead(*kernel, buffer, sink, sms * blocks, kStreamBytes, timer));
    ceilings.read_gb_per_s = std::max(ceilings.read_gb_per_s, rate);
  }
  for (const int64_t bytes : kPointBytes) {
    ASSIGN_OR_RETURN(const double rate,
                     MeasureRead(*kernel, buffer, sink, sms * kPointBlocksPerSm,
                                 bytes, timer));
    ceilings.stream.push_back({bytes, rate});
  }
  return absl::OkStatus();
}

absl::Status MeasureMma(const DevicePtr& device, const TargetBuffer& sink,
                        Timer& timer, Ceilings& ceilings) {
  ASSIGN_OR_RETURN(const std::unique_ptr<PtxKernel> kernel,
                   PtxKernel::Load(device, "kvforge_mma_rate"));
  const int blocks = device->limits().sm_count * kMmaBlocksPerSm;
  const auto launch = [&](int64_t, CuStream stream) {
    unsigned rounds = kMmaRounds;
    CuDevicePtr to = Address(sink);
    void* parameters[] = {&rounds, &to};
    return kernel->Launch(blocks, kMmaThreads, stream, parameters);
  };
  ASSIGN_OR_RETURN(const Summary us, timer.MeasureOne(launch));
  const double warps = static_cast<double>(blocks) * kMmaThreads / 32;
  ceilings.mma_tflop_per_s =
      warps * kMmaRounds * kMmaRoundFlops / us.median / 1e6;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Ceilings> MeasureCeilings(const Engine& engine, Timer& timer) {
  ASSIGN_OR_RETURN(TargetBuffer from,
                   TargetBuffer::Allocate(engine, kStreamBytes));
  ASSIGN_OR_RETURN(const TargetBuffer to,
                   TargetBuffer::Allocate(engine, kStreamBytes));
  ASSIGN_OR_RETURN(const TargetBuffer sink, TargetBuffer::Allocate(engine, 4));
  RETURN_IF_ERROR(FillRandom(engine, from));

  const DevicePtr& device = engine.device();
  Ceilings ceilings;
  const auto copy = [&](int64_t, CuStream stream) -> absl::Status {
    const ScopedContext context(*device);
    RETURN_IF_ERROR(context.status());
    return device->api().Check(
        device->api().MemcpyDtoDAsync(Address(to), Address(from), kStreamBytes,
                                      stream),
        "cuMemcpyDtoDAsync");
  };
  ASSIGN_OR_RETURN(const Summary us, timer.MeasureOne(copy));
  ceilings.copy_gb_per_s = GbPerS(2 * kStreamBytes, us);
  // PTX needs the driver's own compiler, which an installation may lack.
  absl::Status missing = MeasureStream(device, from, sink, timer, ceilings);
  missing.Update(MeasureMma(device, sink, timer, ceilings));
  ceilings.missing = std::string(missing.message());
  return ceilings;
}

}  // namespace kvforge::bench
