#include <elf.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/cubin_facts.h"
#include "tests/stand_in/stand_in_state.h"

namespace kvforge {

// What the handles lead to.
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

int CheckStream(CuStream stream) {
  if (CurrentDevice() < 0) return Misuse(kInvalidContext);
  return stream == nullptr || stream->device == CurrentDevice()
             ? 0
             : Misuse(kInvalidHandle);
}

namespace {

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
  std::lock_guard lock(stand_in_mutex);
  ++stand_in_counts.launches[function->device];
  return 0;
}

}  // namespace

extern "C" {

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
  std::lock_guard lock(stand_in_mutex);
  stand_in_counts.launches[exec->device] += exec->launches;
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
    std::lock_guard lock(stand_in_mutex);
    ++stand_in_counts.encoded_maps;
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
