#include "runtime/cuda/driver_api.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace kvforge {
namespace {

constexpr char kDriverLibrary[] = "libcuda.so.1";

// CUresult values that get a code of their own.
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kStubLibrary = 34;
constexpr int kNoDevice = 100;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidImage = 200;
constexpr int kNoBinaryForGpu = 209;
constexpr int kUnsupportedPtxVersion = 222;
constexpr int kNotFound = 500;
constexpr int kLaunchOutOfResources = 701;
constexpr int kSystemDriverMismatch = 803;

absl::StatusCode CodeOf(int result) {
  switch (result) {
    case kInvalidValue:
    case kInvalidDevice:
      return absl::StatusCode::kInvalidArgument;
    case kOutOfMemory:
    case kLaunchOutOfResources:
      return absl::StatusCode::kResourceExhausted;
    case kStubLibrary:
    case kNoDevice:
      return absl::StatusCode::kUnavailable;
    case kInvalidImage:
      return absl::StatusCode::kDataLoss;
    case kNoBinaryForGpu:
    case kUnsupportedPtxVersion:
    case kSystemDriverMismatch:
      return absl::StatusCode::kFailedPrecondition;
    case kNotFound:
      return absl::StatusCode::kNotFound;
    default:
      return absl::StatusCode::kInternal;
  }
}

// A DriverApi with every member set, or the first name that the library lacks.
absl::Status Resolve(void* library, DriverApi& api) {
#define KVFORGE_DRIVER_SYMBOL(member, exported, parameters)               \
  api.member =                                                            \
      reinterpret_cast<decltype(api.member)>(dlsym(library, #exported));  \
  if (api.member == nullptr) {                                            \
    return absl::FailedPreconditionError(absl::StrCat(                    \
        "the CUDA driver has no ", #exported,                             \
        "; drivers of CUDA 12.0 (525) and later do; update the driver")); \
  }
#include "runtime/cuda/driver_symbols.inc"
#undef KVFORGE_DRIVER_SYMBOL
  return absl::OkStatus();
}

absl::StatusOr<const DriverApi*> Open() {
  void* library = dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "no CUDA driver: ", dlerror(), "; a GPU needs NVIDIA's driver of CUDA ",
        "12.0 or later; install it, or use the host target"));
  }
  // Never freed: the driver stays for the life of the process.
  auto* api = new DriverApi;
  if (absl::Status status = Resolve(library, *api); !status.ok()) {
    delete api;
    return status;
  }
  if (const int result = api->Init(0); result != 0) {
    const absl::Status status = api->Check(result, "cuInit");
    delete api;
    return absl::UnavailableError(absl::StrCat(
        "the CUDA driver finds no usable GPU: ", status.message(),
        "; check `nvidia-smi` and CUDA_VISIBLE_DEVICES, or use the host "
        "target"));
  }
  if (const int result = api->DriverGetVersion(&api->version); result != 0) {
    absl::Status status = api->Check(result, "cuDriverGetVersion");
    delete api;
    return status;
  }
  return api;
}

}  // namespace

absl::StatusOr<const DriverApi*> DriverApi::Get() {
  static const auto& api = *new absl::StatusOr<const DriverApi*>(Open());
  return api;
}

absl::Status DriverApi::Check(int result, absl::string_view what) const {
  if (result == 0) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  if (GetErrorName(result, &name) != 0 || name == nullptr) name = "CUresult";
  if (GetErrorString(result, &text) != 0 || text == nullptr) text = "unknown";
  return absl::Status(CodeOf(result), absl::StrCat(what, ": ", name, " (",
                                                   result, "): ", text));
}

}  // namespace kvforge
