#include "tests/stand_in/stand_in_driver.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "tests/stand_in/stand_in_state.h"

namespace kvforge {

struct KvforgeCuContextOpaque {
  int device;
};

StandInSettings stand_in_settings;
StandInCounts stand_in_counts;
std::mutex stand_in_mutex;

namespace {

constexpr size_t kMemoryBytes = size_t{8} << 30;  // of a device
constexpr size_t kAlignment = 256;
constexpr int kVersion = 13000;  // CUDA 13.0
constexpr int kComputeCapability[kStandInDevices] = {90, 80};

struct Buffer {
  int device;
  size_t bytes;
};

std::map<CuDevicePtr, Buffer> buffers;  // guarded by stand_in_mutex
size_t used_bytes[kStandInDevices];     // likewise
KvforgeCuContextOpaque contexts[kStandInDevices] = {{0}, {1}};
thread_local std::vector<CuContext> current;

// 0 if the range lies in one buffer.
int CheckRange(CuDevicePtr address, size_t bytes) {
  std::lock_guard lock(stand_in_mutex);
  auto found = buffers.upper_bound(address);
  if (found != buffers.begin()) {
    --found;
    if (address + bytes <= found->first + found->second.bytes) return 0;
  }
  ++stand_in_counts.misuses;
  return kIllegalAddress;
}

void* HostAddress(CuDevicePtr pointer) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(pointer));
}

}  // namespace

int Enter(const char* name) {
  std::lock_guard lock(stand_in_mutex);
  ++stand_in_counts.calls;
  if (stand_in_settings.failing == nullptr) return 0;
  const bool meant = std::strcmp(stand_in_settings.failing, "*") == 0 ||
                     std::strcmp(stand_in_settings.failing, name) == 0;
  return meant && stand_in_settings.skipped-- == 0 ? stand_in_settings.result
                                                   : 0;
}

int Misuse(int result) {
  std::lock_guard lock(stand_in_mutex);
  ++stand_in_counts.misuses;
  return result;
}

int CurrentDevice() {
  return current.empty() || current.back() == nullptr ? -1
                                                      : current.back()->device;
}

extern "C" {

KVFORGE_EXPORT StandInSettings* kvforge_stand_in_settings() {
  return &stand_in_settings;
}
KVFORGE_EXPORT StandInCounts kvforge_stand_in_counts() {
  std::lock_guard lock(stand_in_mutex);
  return stand_in_counts;
}

KVFORGE_EXPORT int cuInit(unsigned) {
  KVFORGE_CALL(cuInit)
  return 0;
}
KVFORGE_EXPORT int cuDriverGetVersion(int* version) {
  KVFORGE_CALL(cuDriverGetVersion)
  *version = kVersion;
  return 0;
}
KVFORGE_EXPORT int cuGetErrorName(int, const char** text) {
  *text = "CUDA_ERROR_OF_THE_STAND_IN";
  return 0;
}
KVFORGE_EXPORT int cuGetErrorString(int, const char** text) {
  *text = "a test told it to fail";
  return 0;
}

KVFORGE_EXPORT int cuDeviceGetCount(int* count) {
  KVFORGE_CALL(cuDeviceGetCount)
  *count = kStandInDevices;
  return 0;
}
KVFORGE_EXPORT int cuDeviceGet(CuDevice* device, int ordinal) {
  KVFORGE_CALL(cuDeviceGet)
  *device = ordinal;
  return ordinal < kStandInDevices ? 0 : kInvalidDevice;
}
KVFORGE_EXPORT int cuDeviceGetName(char* name, int name_bytes, CuDevice) {
  KVFORGE_CALL(cuDeviceGetName)
  std::strncpy(name, "stand-in", name_bytes);
  return 0;
}
KVFORGE_EXPORT int cuDeviceGetAttribute(int* value, int attribute,
                                        CuDevice device) {
  KVFORGE_CALL(cuDeviceGetAttribute)
  const int capability = kComputeCapability[device];
  // CUdevice_attribute, of an H200 and of an A100.
  const bool hopper = capability >= 90;
  const std::map<int, int> values = {
      {75, capability / 10},
      {76, capability % 10},
      {16, hopper ? 132 : 108},
      {97, hopper ? 232448 : 166912},
      {81, hopper ? 233472 : 167936},
      {111, 1024},
      {39, 2048},
      {82, 65536},
      {38, hopper ? 62914560 : 41943040},
  };
  const auto found = values.find(attribute);
  if (found == values.end()) return Misuse(kInvalidValue);
  *value = found->second;
  return 0;
}
KVFORGE_EXPORT int cuDeviceTotalMem_v2(size_t* bytes, CuDevice) {
  KVFORGE_CALL(cuDeviceTotalMem_v2)
  *bytes = kMemoryBytes;
  return 0;
}

KVFORGE_EXPORT int cuDevicePrimaryCtxRetain(CuContext* context,
                                            CuDevice device) {
  KVFORGE_CALL(cuDevicePrimaryCtxRetain)
  *context = &contexts[device];
  return 0;
}
KVFORGE_EXPORT int cuDevicePrimaryCtxRelease_v2(CuDevice) { return 0; }
KVFORGE_EXPORT int cuCtxGetCurrent(CuContext* context) {
  KVFORGE_CALL(cuCtxGetCurrent)
  *context = current.empty() ? nullptr : current.back();
  return 0;
}
KVFORGE_EXPORT int cuCtxSetCurrent(CuContext context) {
  KVFORGE_CALL(cuCtxSetCurrent)
  if (current.empty()) {
    current.push_back(context);
  } else {
    current.back() = context;
  }
  return 0;
}
KVFORGE_EXPORT int cuCtxPushCurrent_v2(CuContext context) {
  KVFORGE_CALL(cuCtxPushCurrent_v2)
  current.push_back(context);
  std::lock_guard lock(stand_in_mutex);
  ++stand_in_counts.contexts;
  return 0;
}
KVFORGE_EXPORT int cuCtxPopCurrent_v2(CuContext* context) {
  if (current.empty()) return Misuse(kInvalidContext);
  *context = current.back();
  current.pop_back();
  std::lock_guard lock(stand_in_mutex);
  --stand_in_counts.contexts;
  return 0;
}
KVFORGE_EXPORT int cuCtxSynchronize() {
  KVFORGE_CALL(cuCtxSynchronize)
  return CurrentDevice() < 0 ? Misuse(kInvalidContext) : 0;
}

KVFORGE_EXPORT int cuMemAlloc_v2(CuDevicePtr* pointer, size_t bytes) {
  KVFORGE_CALL(cuMemAlloc_v2)
  const int device = CurrentDevice();
  if (device < 0) return Misuse(kInvalidContext);
  std::lock_guard lock(stand_in_mutex);
  if (bytes > kMemoryBytes - used_bytes[device]) return kOutOfMemory;
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr) return kOutOfMemory;
  *pointer = reinterpret_cast<uintptr_t>(memory);
  buffers[*pointer] = {device, bytes};
  used_bytes[device] += bytes;
  ++stand_in_counts.buffers;
  return 0;
}
KVFORGE_EXPORT int cuMemFree_v2(CuDevicePtr pointer) {
  std::lock_guard lock(stand_in_mutex);
  const auto found = buffers.find(pointer);
  if (found == buffers.end()) {
    ++stand_in_counts.misuses;
    return kInvalidValue;
  }
  used_bytes[found->second.device] -= found->second.bytes;
  buffers.erase(found);
  std::free(HostAddress(pointer));
  --stand_in_counts.buffers;
  return 0;
}
KVFORGE_EXPORT int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  KVFORGE_CALL(cuMemGetInfo_v2)
  const int device = CurrentDevice();
  if (device < 0) return Misuse(kInvalidContext);
  std::lock_guard lock(stand_in_mutex);
  *free_bytes = kMemoryBytes - used_bytes[device];
  *total_bytes = kMemoryBytes;
  return 0;
}
KVFORGE_EXPORT int cuMemcpyHtoD_v2(CuDevicePtr to, const void* from,
                                   size_t bytes) {
  KVFORGE_CALL(cuMemcpyHtoD_v2)
  if (const int wrong = CheckRange(to, bytes); wrong != 0) return wrong;
  std::memcpy(HostAddress(to), from, bytes);
  return 0;
}
KVFORGE_EXPORT int cuMemcpyDtoH_v2(void* to, CuDevicePtr from, size_t bytes) {
  KVFORGE_CALL(cuMemcpyDtoH_v2)
  if (const int wrong = CheckRange(from, bytes); wrong != 0) return wrong;
  std::memcpy(to, HostAddress(from), bytes);
  return 0;
}
KVFORGE_EXPORT int cuMemcpyHtoDAsync_v2(CuDevicePtr to, const void* from,
                                        size_t bytes, CuStream stream) {
  if (const int wrong = CheckStream(stream); wrong != 0) return wrong;
  return cuMemcpyHtoD_v2(to, from, bytes);
}
KVFORGE_EXPORT int cuMemcpyDtoHAsync_v2(void* to, CuDevicePtr from,
                                        size_t bytes, CuStream stream) {
  if (const int wrong = CheckStream(stream); wrong != 0) return wrong;
  return cuMemcpyDtoH_v2(to, from, bytes);
}
KVFORGE_EXPORT int cuMemcpyDtoDAsync_v2(CuDevicePtr to, CuDevicePtr from,
                                        size_t bytes, CuStream stream) {
  if (const int wrong = CheckStream(stream); wrong != 0) return wrong;
  if (const int wrong = CheckRange(from, bytes); wrong != 0) return wrong;
  return cuMemcpyHtoD_v2(to, HostAddress(from), bytes);
}
KVFORGE_EXPORT int cuMemsetD8_v2(CuDevicePtr to, unsigned char value,
                                 size_t bytes) {
  KVFORGE_CALL(cuMemsetD8_v2)
  if (const int wrong = CheckRange(to, bytes); wrong != 0) return wrong;
  std::memset(HostAddress(to), value, bytes);
  return 0;
}
KVFORGE_EXPORT int cuMemsetD8Async(CuDevicePtr to, unsigned char value,
                                   size_t bytes, CuStream stream) {
  if (const int wrong = CheckStream(stream); wrong != 0) return wrong;
  return cuMemsetD8_v2(to, value, bytes);
}

}  // extern "C"

}  // namespace kvforge
