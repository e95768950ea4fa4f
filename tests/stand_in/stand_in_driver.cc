#include "tests/stand_in/stand_in_driver.h"

#include <elf.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/cubin_facts.h"
#include "runtime/cuda/driver_api.h"

namespace kvforge {

// What the handles lead to.
struct KvforgeCuContextOpaque {
  int device;
};
struct KvforgeCuLibraryOpaque {
  std::string code;
  std::vector<std::unique_ptr<KvforgeCuKernelOpaque>> kernels;
};
struct KvforgeCuFunctionOpaque {
  int device;
  size_t param_bytes;
};
struct KvforgeCuKernelOpaque {
  size_t param_bytes;
  KvforgeCuFunctionOpaque functions[kStandInDevices];
};
struct KvforgeCuGraphNodeOpaque {
  CuKernelNodeParams params;
  std::vector<char> bytes;  // of the one struct that kernels take
  void* parameters[1];
};
struct KvforgeCuGraphOpaque {
  std::vector<std::unique_ptr<KvforgeCuGraphNodeOpaque>> nodes;
};
struct KvforgeCuGraphExecOpaque {
  int device;
  long long launches;
};
struct KvforgeCuStreamOpaque {
  int device;
  std::unique_ptr<KvforgeCuGraphOpaque> capture;
};
struct KvforgeCuEventOpaque {
  int device;
  std::chrono::steady_clock::time_point time;
};

namespace {

// CUresult.
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidContext = 201;
constexpr int kInvalidHandle = 400;
constexpr int kNotFound = 500;
constexpr int kIllegalAddress = 700;

constexpr size_t kMemoryBytes = size_t{8} << 30;  // of a device
constexpr size_t kAlignment = 256;

struct Buffer {
  int device;
  size_t bytes;
};

StandInSettings settings;
StandInCounts counts;  // guarded by mutex
std::mutex mutex;
std::map<CuDevicePtr, Buffer> buffers;  // guarded by mutex
size_t used_bytes[kStandInDevices];     // guarded by mutex
KvforgeCuContextOpaque contexts[kStandInDevices] = {{0}, {1}};
thread_local std::vector<CuContext> current;

// Counts the call `name`; what it is to fail with, 0 if it is not.
int Enter(const char* name) {
  std::lock_guard lock(mutex);
  ++counts.calls;
  if (settings.failing == nullptr) return 0;
  const bool meant = std::strcmp(settings.failing, "*") == 0 ||
                     std::strcmp(settings.failing, name) == 0;
  return meant && settings.skipped-- == 0 ? settings.result : 0;
}

int Misuse(int result) {
  std::lock_guard lock(mutex);
  ++counts.misuses;
  return result;
}

// The current context's device; -1 without one.
int CurrentDevice() {
  return current.empty() || current.back() == nullptr ? -1
                                                      : current.back()->device;
}

// 0 if the range lies in one buffer.
int CheckRange(CuDevicePtr address, size_t bytes) {
  std::lock_guard lock(mutex);
  auto found = buffers.upper_bound(address);
  if (found != buffers.begin()) {
    --found;
    if (address + bytes <= found->first + found->second.bytes) return 0;
  }
  ++counts.misuses;
  return kIllegalAddress;
}

int CheckStream(CuStream stream) {
  if (CurrentDevice() < 0) return Misuse(kInvalidContext);
  return stream == nullptr || stream->device == CurrentDevice()
             ? 0
             : Misuse(kInvalidHandle);
}

void* HostAddress(CuDevicePtr pointer) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(pointer));
}

template <class T>
T* Made(T* made, long long StandInCounts::*count) {
  std::lock_guard lock(mutex);
  ++(counts.*count);
  return made;
}
template <class T>
int Freed(T* handle, long long StandInCounts::*count) {
  delete handle;
  std::lock_guard lock(mutex);
  --(counts.*count);
  return 0;
}

// Bytes of an ELF file, whose section headers come last.
size_t ElfBytes(const void* code) {
  Elf64_Ehdr header;
  std::memcpy(&header, code, sizeof(header));
  size_t end = header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
  end = std::max<size_t>(
      end, header.e_phoff + size_t{header.e_phnum} * header.e_phentsize);
  return end;
}

int Launch(CuFunction function, const CuLaunchConfig& config,
           void** parameters) {
  if (const int wrong = CheckStream(config.stream); wrong != 0) return wrong;
  if (function == nullptr || function->device != CurrentDevice()) {
    return Misuse(kInvalidHandle);
  }
  if (config.stream != nullptr && config.stream->capture != nullptr) {
    auto node = std::make_unique<KvforgeCuGraphNodeOpaque>();
    const char* bytes = static_cast<const char*>(parameters[0]);
    node->bytes.assign(bytes, bytes + function->param_bytes);
    node->parameters[0] = node->bytes.data();
    node->params = {function,
                    {config.grid[0], config.grid[1], config.grid[2]},
                    {config.block[0], config.block[1], config.block[2]},
                    config.shared_bytes,
                    node->parameters,
                    nullptr,
                    nullptr,
                    nullptr};
    config.stream->capture->nodes.push_back(std::move(node));
    return 0;
  }
  std::lock_guard lock(mutex);
  ++counts.launches[function->device];
  return 0;
}

}  // namespace

extern "C" {

#define KVFORGE_EXPORT __attribute__((visibility("default")))
// A call that may be told to fail.
#define KVFORGE_CALL(name)                       \
  if (const int failed = Enter(#name); failed) { \
    return failed;                               \
  }

KVFORGE_EXPORT StandInSettings* kvforge_stand_in_settings() {
  return &settings;
}
KVFORGE_EXPORT StandInCounts kvforge_stand_in_counts() {
  std::lock_guard lock(mutex);
  return counts;
}

KVFORGE_EXPORT int cuInit(unsigned) {
  KVFORGE_CALL(cuInit)
  return 0;
}
KVFORGE_EXPORT int cuDriverGetVersion(int* version) {
  KVFORGE_CALL(cuDriverGetVersion)
  *version = settings.version;
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
  const int capability = settings.compute_capability[device];
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
  std::lock_guard lock(mutex);
  ++counts.contexts;
  return 0;
}
KVFORGE_EXPORT int cuCtxPopCurrent_v2(CuContext* context) {
  if (current.empty()) return Misuse(kInvalidContext);
  *context = current.back();
  current.pop_back();
  std::lock_guard lock(mutex);
  --counts.contexts;
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
  std::lock_guard lock(mutex);
  if (bytes > kMemoryBytes - used_bytes[device]) return kOutOfMemory;
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr) return kOutOfMemory;
  *pointer = reinterpret_cast<uintptr_t>(memory);
  buffers[*pointer] = {device, bytes};
  used_bytes[device] += bytes;
  ++counts.buffers;
  return 0;
}
KVFORGE_EXPORT int cuMemFree_v2(CuDevicePtr pointer) {
  std::lock_guard lock(mutex);
  const auto found = buffers.find(pointer);
  if (found == buffers.end()) {
    ++counts.misuses;
    return kInvalidValue;
  }
  used_bytes[found->second.device] -= found->second.bytes;
  buffers.erase(found);
  std::free(HostAddress(pointer));
  --counts.buffers;
  return 0;
}
KVFORGE_EXPORT int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  KVFORGE_CALL(cuMemGetInfo_v2)
  const int device = CurrentDevice();
  if (device < 0) return Misuse(kInvalidContext);
  std::lock_guard lock(mutex);
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

KVFORGE_EXPORT int cuStreamCreate(CuStream* stream, unsigned) {
  KVFORGE_CALL(cuStreamCreate)
  if (CurrentDevice() < 0) return Misuse(kInvalidContext);
  *stream = Made(new KvforgeCuStreamOpaque{CurrentDevice(), nullptr},
                 &StandInCounts::streams);
  return 0;
}
KVFORGE_EXPORT int cuStreamSynchronize(CuStream stream) {
  KVFORGE_CALL(cuStreamSynchronize)
  return CheckStream(stream);
}
KVFORGE_EXPORT int cuStreamDestroy_v2(CuStream stream) {
  return Freed(stream, &StandInCounts::streams);
}
KVFORGE_EXPORT int cuStreamIsCapturing(CuStream stream, int* status) {
  KVFORGE_CALL(cuStreamIsCapturing)
  *status = stream != nullptr && stream->capture != nullptr;
  return CheckStream(stream);
}
KVFORGE_EXPORT int cuStreamBeginCapture_v2(CuStream stream, int) {
  KVFORGE_CALL(cuStreamBeginCapture_v2)
  if (const int wrong = CheckStream(stream); wrong != 0) return wrong;
  if (stream == nullptr) return Misuse(kInvalidValue);
  stream->capture = std::make_unique<KvforgeCuGraphOpaque>();
  return 0;
}
KVFORGE_EXPORT int cuStreamEndCapture(CuStream stream, CuGraph* graph) {
  KVFORGE_CALL(cuStreamEndCapture)
  if (const int wrong = CheckStream(stream); wrong != 0) return wrong;
  if (stream->capture == nullptr) return Misuse(kInvalidValue);
  *graph = Made(stream->capture.release(), &StandInCounts::graphs);
  return 0;
}

KVFORGE_EXPORT int cuEventCreate(CuEvent* event, unsigned) {
  KVFORGE_CALL(cuEventCreate)
  if (CurrentDevice() < 0) return Misuse(kInvalidContext);
  *event = Made(new KvforgeCuEventOpaque{CurrentDevice(), {}},
                &StandInCounts::events);
  return 0;
}
KVFORGE_EXPORT int cuEventRecord(CuEvent event, CuStream stream) {
  KVFORGE_CALL(cuEventRecord)
  event->time = std::chrono::steady_clock::now();
  return CheckStream(stream);
}
KVFORGE_EXPORT int cuEventSynchronize(CuEvent) {
  KVFORGE_CALL(cuEventSynchronize)
  return 0;
}
KVFORGE_EXPORT int cuEventElapsedTime(float* milliseconds, CuEvent start,
                                      CuEvent end) {
  KVFORGE_CALL(cuEventElapsedTime)
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return 0;
}
KVFORGE_EXPORT int cuEventDestroy_v2(CuEvent event) {
  return Freed(event, &StandInCounts::events);
}

KVFORGE_EXPORT int cuGraphInstantiateWithFlags(CuGraphExec* exec, CuGraph graph,
                                               unsigned long long) {
  KVFORGE_CALL(cuGraphInstantiateWithFlags)
  if (CurrentDevice() < 0) return Misuse(kInvalidContext);
  *exec = Made(
      new KvforgeCuGraphExecOpaque{CurrentDevice(),
                                   static_cast<long long>(graph->nodes.size())},
      &StandInCounts::graphs);
  return 0;
}
KVFORGE_EXPORT int cuGraphLaunch(CuGraphExec exec, CuStream stream) {
  KVFORGE_CALL(cuGraphLaunch)
  if (const int wrong = CheckStream(stream); wrong != 0) return wrong;
  if (exec->device != CurrentDevice()) return Misuse(kInvalidHandle);
  std::lock_guard lock(mutex);
  counts.launches[exec->device] += exec->launches;
  return 0;
}
KVFORGE_EXPORT int cuGraphExecDestroy(CuGraphExec exec) {
  return Freed(exec, &StandInCounts::graphs);
}
KVFORGE_EXPORT int cuGraphDestroy(CuGraph graph) {
  return Freed(graph, &StandInCounts::graphs);
}
KVFORGE_EXPORT int cuGraphGetNodes(CuGraph graph, CuGraphNode* nodes,
                                   size_t* num_nodes) {
  KVFORGE_CALL(cuGraphGetNodes)
  const size_t count = std::min(*num_nodes, graph->nodes.size());
  for (size_t i = 0; i < count; ++i) nodes[i] = graph->nodes[i].get();
  *num_nodes = count;
  return 0;
}
KVFORGE_EXPORT int cuGraphKernelNodeGetParams_v2(CuGraphNode node,
                                                 CuKernelNodeParams* params) {
  KVFORGE_CALL(cuGraphKernelNodeGetParams_v2)
  *params = node->params;
  return 0;
}

KVFORGE_EXPORT int cuLibraryLoadData(CuLibrary* library, const void* code, int*,
                                     void**, unsigned, int*, void**, unsigned) {
  KVFORGE_CALL(cuLibraryLoadData)
  const char* bytes = static_cast<const char*>(code);
  *library =
      Made(new KvforgeCuLibraryOpaque{{bytes, bytes + ElfBytes(code)}, {}},
           &StandInCounts::libraries);
  return 0;
}
KVFORGE_EXPORT int cuLibraryUnload(CuLibrary library) {
  return Freed(library, &StandInCounts::libraries);
}
KVFORGE_EXPORT int cuLibraryGetKernel(CuKernel* kernel, CuLibrary library,
                                      const char* name) {
  KVFORGE_CALL(cuLibraryGetKernel)
  const auto facts = ReadCubinFacts(library->code, name);
  if (!facts.ok()) return Misuse(kNotFound);
  auto made = std::make_unique<KvforgeCuKernelOpaque>();
  made->param_bytes = facts->param_bytes;
  for (int i = 0; i < kStandInDevices; ++i) {
    made->functions[i] = {i, made->param_bytes};
  }
  *kernel = made.get();
  library->kernels.push_back(std::move(made));
  return 0;
}
KVFORGE_EXPORT int cuLibraryGetGlobal(CuDevicePtr*, size_t*, CuLibrary,
                                      const char*) {
  KVFORGE_CALL(cuLibraryGetGlobal)
  return kNotFound;
}
KVFORGE_EXPORT int cuKernelGetFunction(CuFunction* function, CuKernel kernel) {
  KVFORGE_CALL(cuKernelGetFunction)
  if (CurrentDevice() < 0) return Misuse(kInvalidContext);
  *function = &kernel->functions[CurrentDevice()];
  return 0;
}
KVFORGE_EXPORT int cuFuncGetAttribute(int* value, int, CuFunction) {
  KVFORGE_CALL(cuFuncGetAttribute)
  *value = 0;
  return 0;
}
KVFORGE_EXPORT int cuFuncSetAttribute(CuFunction function, int, int) {
  KVFORGE_CALL(cuFuncSetAttribute)
  return function->device == CurrentDevice() ? 0 : Misuse(kInvalidContext);
}
KVFORGE_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                               CuFunction, int,
                                                               size_t) {
  KVFORGE_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor)
  *blocks = 1;
  return 0;
}
KVFORGE_EXPORT int cuTensorMapEncodeTiled(void* map, int, unsigned rank,
                                          void* base,
                                          const unsigned long long* sizes,
                                          const unsigned long long* strides,
                                          const unsigned* box, const unsigned*,
                                          int, int, int, int) {
  KVFORGE_CALL(cuTensorMapEncodeTiled) {
    std::lock_guard lock(mutex);
    ++counts.encoded_maps;
  }
  if (reinterpret_cast<uintptr_t>(base) % 16 != 0) return Misuse(kInvalidValue);
  for (unsigned i = 0; i < rank; ++i) {
    if (sizes[i] == 0 || box[i] == 0 || box[i] > 256 ||
        (i + 1 < rank && strides[i] % 16 != 0)) {
      return Misuse(kInvalidValue);
    }
  }
  std::memcpy(map, &base, sizeof(base));
  return 0;
}
KVFORGE_EXPORT int cuLaunchKernel(CuFunction function, unsigned grid_x,
                                  unsigned grid_y, unsigned grid_z,
                                  unsigned block_x, unsigned block_y,
                                  unsigned block_z, unsigned shared_bytes,
                                  CuStream stream, void** parameters, void**) {
  KVFORGE_CALL(cuLaunchKernel)
  return Launch(function,
                {{grid_x, grid_y, grid_z},
                 {block_x, block_y, block_z},
                 shared_bytes,
                 stream,
                 nullptr,
                 0},
                parameters);
}
KVFORGE_EXPORT int cuLaunchKernelEx(const CuLaunchConfig* config,
                                    CuFunction function, void** parameters,
                                    void**) {
  KVFORGE_CALL(cuLaunchKernelEx)
  return Launch(function, *config, parameters);
}

}  // extern "C"

}  // namespace kvforge
