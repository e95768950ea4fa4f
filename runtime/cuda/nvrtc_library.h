// The functions of libnvrtc that kvforge calls, and where it is looked for.
#ifndef KVFORGE_RUNTIME_CUDA_NVRTC_LIBRARY_H_
#define KVFORGE_RUNTIME_CUDA_NVRTC_LIBRARY_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/knobs.h"

namespace kvforge {

using NvrtcProgram = struct KvforgeNvrtcProgramOpaque*;

// Each int that a function returns is an nvrtcResult.
struct NvrtcLibrary {
  int (*Version)(int* major, int* minor) = nullptr;
  int (*GetNumSupportedArchs)(int* count) = nullptr;
  int (*GetSupportedArchs)(int* archs) = nullptr;
  const char* (*GetErrorString)(int result) = nullptr;
  int (*CreateProgram)(NvrtcProgram* program, const char* source,
                       const char* name, int header_count,
                       const char* const* headers,
                       const char* const* include_names) = nullptr;
  int (*DestroyProgram)(NvrtcProgram* program) = nullptr;
  int (*CompileProgram)(NvrtcProgram program, int option_count,
                        const char* const* options) = nullptr;
  int (*GetProgramLogSize)(NvrtcProgram program, size_t* bytes) = nullptr;
  int (*GetProgramLog)(NvrtcProgram program, char* log) = nullptr;
  int (*GetCubinSize)(NvrtcProgram program, size_t* bytes) = nullptr;
  int (*GetCubin)(NvrtcProgram program, char* cubin) = nullptr;
  int (*GetPtxSize)(NvrtcProgram program, size_t* bytes) = nullptr;
  int (*GetPtx)(NvrtcProgram program, char* ptx) = nullptr;

  std::string path;  // the file that the loader opened
};

// Names and paths to try with dlopen, in order.
std::vector<std::string> NvrtcCandidates(const Knobs& knobs);

// kUnavailable lists the candidates. The library stays open for the life of the
// process.
absl::StatusOr<std::unique_ptr<NvrtcLibrary>> OpenNvrtcLibrary(
    const Knobs& knobs);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CUDA_NVRTC_LIBRARY_H_
