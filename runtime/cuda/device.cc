#include "runtime/cuda/device.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

// CUdevice_attribute.
constexpr int kMultiprocessorCount = 16;
constexpr int kL2CacheBytes = 38;
constexpr int kMaxThreadsPerMultiprocessor = 39;
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;
constexpr int kMaxSharedBytesPerMultiprocessor = 81;
constexpr int kMaxRegistersPerMultiprocessor = 82;
constexpr int kMaxSharedBytesPerBlockOptIn = 97;
constexpr int kReservedSharedBytesPerBlock = 111;

constexpr int kNameBytes = 256;

}  // namespace

absl::StatusOr<int> Device::Count() {
  ASSIGN_OR_RETURN(const DriverApi* api, DriverApi::Get());
  int count = 0;
  RETURN_IF_ERROR(api->Check(api->DeviceGetCount(&count), "cuDeviceGetCount"));
  return count;
}

absl::StatusOr<DevicePtr> Device::Open(int ordinal) {
  ASSIGN_OR_RETURN(const DriverApi* api, DriverApi::Get());
  ASSIGN_OR_RETURN(const int count, Count());
  if (ordinal < 0 || ordinal >= count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no GPU ", ordinal, "; this process sees ", count,
        " of them, from 0; choose one or check CUDA_VISIBLE_DEVICES"));
  }
  std::shared_ptr<Device> device(new Device);
  device->ordinal_ = ordinal;
  RETURN_IF_ERROR(
      api->Check(api->DeviceGet(&device->handle_, ordinal), "cuDeviceGet"));
  char name[kNameBytes] = {};
  RETURN_IF_ERROR(
      api->Check(api->DeviceGetName(name, kNameBytes, device->handle_),
                 "cuDeviceGetName"));
  device->name_ = name;

  int major = 0;
  int minor = 0;
  DeviceLimits& limits = device->limits_;
  const struct {
    int attribute;
    int* value;
  } attributes[] = {
      {kComputeCapabilityMajor, &major},
      {kComputeCapabilityMinor, &minor},
      {kMultiprocessorCount, &limits.sm_count},
      {kMaxSharedBytesPerBlockOptIn, &limits.shared_bytes_opt_in},
      {kMaxSharedBytesPerMultiprocessor, &limits.shared_bytes_per_sm},
      {kReservedSharedBytesPerBlock, &limits.shared_bytes_reserved},
      {kMaxThreadsPerMultiprocessor, &limits.threads_per_sm},
      {kMaxRegistersPerMultiprocessor, &limits.registers_per_sm},
      {kL2CacheBytes, &limits.l2_bytes},
  };
  for (const auto& [attribute, value] : attributes) {
    RETURN_IF_ERROR(
        api->Check(api->DeviceGetAttribute(value, attribute, device->handle_),
                   absl::StrCat("cuDeviceGetAttribute(", attribute, ")")));
  }
  device->compute_capability_ = major * 10 + minor;
  size_t memory_bytes = 0;
  RETURN_IF_ERROR(api->Check(
      api->DeviceTotalMem(&memory_bytes, device->handle_), "cuDeviceTotalMem"));
  limits.memory_bytes = static_cast<int64_t>(memory_bytes);

  RETURN_IF_ERROR(api->Check(
      api->DevicePrimaryCtxRetain(&device->context_, device->handle_),
      "cuDevicePrimaryCtxRetain"));
  device->api_ = api;
  return device;
}

Device::~Device() {
  if (api_ != nullptr) api_->DevicePrimaryCtxRelease(handle_);
}

ScopedContext::ScopedContext(const Device& device) : api_(device.api()) {
  CuContext current = nullptr;
  status_ = api_.Check(api_.CtxGetCurrent(&current), "cuCtxGetCurrent");
  if (!status_.ok() || current == device.context()) return;
  status_ =
      api_.Check(api_.CtxPushCurrent(device.context()), "cuCtxPushCurrent");
  pushed_ = status_.ok();
}

ScopedContext::~ScopedContext() {
  CuContext popped = nullptr;
  if (pushed_) api_.CtxPopCurrent(&popped);
}

}  // namespace kvforge
