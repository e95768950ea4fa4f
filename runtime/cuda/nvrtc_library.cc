#include "runtime/cuda/nvrtc_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kvforge {
namespace {

constexpr absl::string_view kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
constexpr absl::string_view kLibraryFolders[] = {"lib64", "lib"};
constexpr char kToolkits[] = "/usr/local";

// /usr/local/cuda and /usr/local/cuda-*, the later version first.
std::vector<std::string> InstalledToolkits() {
  std::vector<std::string> versioned;
  std::error_code error;
  for (std::filesystem::directory_iterator it(kToolkits, error), end;
       !error && it != end; it.increment(error)) {
    if (absl::StartsWith(it->path().filename().string(), "cuda-")) {
      versioned.push_back(it->path().string());
    }
  }
  std::sort(versioned.begin(), versioned.end(), std::greater<>());
  versioned.insert(versioned.begin(), absl::StrCat(kToolkits, "/cuda"));
  return versioned;
}

void AddToolkit(absl::string_view toolkit, absl::string_view name,
                std::vector<std::string>& candidates) {
  for (const absl::string_view folder : kLibraryFolders) {
    candidates.push_back(absl::StrCat(toolkit, "/", folder, "/", name));
  }
}

template <typename Function>
bool Resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::vector<std::string> NvrtcCandidates(const Knobs& knobs) {
  std::vector<std::string> candidates;
  if (!knobs.cuda_home.empty()) {
    for (const absl::string_view name : kNames) {
      AddToolkit(knobs.cuda_home, name, candidates);
    }
  }
  const std::vector<std::string> toolkits = InstalledToolkits();
  for (const absl::string_view name : kNames) {
    candidates.emplace_back(name);
    for (const std::string& toolkit : toolkits) {
      AddToolkit(toolkit, name, candidates);
    }
  }
  return candidates;
}

absl::StatusOr<std::unique_ptr<NvrtcLibrary>> OpenNvrtcLibrary(
    const Knobs& knobs) {
  const std::vector<std::string> candidates = NvrtcCandidates(knobs);
  for (const std::string& candidate : candidates) {
    void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) continue;
    auto library = std::make_unique<NvrtcLibrary>();
    NvrtcLibrary& l = *library;
    const bool whole =
        Resolve(handle, "nvrtcVersion", l.Version) &&
        Resolve(handle, "nvrtcGetNumSupportedArchs", l.GetNumSupportedArchs) &&
        Resolve(handle, "nvrtcGetSupportedArchs", l.GetSupportedArchs) &&
        Resolve(handle, "nvrtcGetErrorString", l.GetErrorString) &&
        Resolve(handle, "nvrtcCreateProgram", l.CreateProgram) &&
        Resolve(handle, "nvrtcDestroyProgram", l.DestroyProgram) &&
        Resolve(handle, "nvrtcCompileProgram", l.CompileProgram) &&
        Resolve(handle, "nvrtcGetProgramLogSize", l.GetProgramLogSize) &&
        Resolve(handle, "nvrtcGetProgramLog", l.GetProgramLog) &&
        Resolve(handle, "nvrtcGetCUBINSize", l.GetCubinSize) &&
        Resolve(handle, "nvrtcGetCUBIN", l.GetCubin) &&
        Resolve(handle, "nvrtcGetPTXSize", l.GetPtxSize) &&
        Resolve(handle, "nvrtcGetPTX", l.GetPtx);
    if (!whole) {
      dlclose(handle);
      continue;
    }
    Dl_info info;
    library->path =
        dladdr(reinterpret_cast<void*>(l.Version), &info) != 0 && info.dli_fname
            ? info.dli_fname
            : candidate;
    return library;
  }
  return absl::UnavailableError(absl::StrCat(
      "no NVRTC to compile with; looked for: ", absl::StrJoin(candidates, ", "),
      "; install the NVRTC of CUDA 12 or 13 (package cuda-nvrtc), set "
      "CUDA_HOME to a toolkit, or use kernels primed elsewhere"));
}

}  // namespace kvforge
