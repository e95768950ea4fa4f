// Emitted kernel text to an x86-64 object, by Clang in this process. No header
// of the system is read: the only files are those of the request.
//
// The object runs on every x86-64-v2 processor (SSE4.2), whatever machine
// compiled it, with `-ffp-contract=off`: an operation is fused only where the
// text says Fma.
#ifndef KVFORGE_RUNTIME_HOST_CLANG_COMPILER_H_
#define KVFORGE_RUNTIME_HOST_CLANG_COMPILER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvforge {

// Symbol of the function that runs one thread: void(const void* args).
inline constexpr absl::string_view kHostEntrySymbol = "kvforge_host_entry";

struct HostFile {
  std::string path;  // as #include spells it: "arch/host.cuh"
  std::string text;
};

struct HostSource {
  std::string name;  // of the text in messages: "decode.cu"
  std::string text;  // defines kvforge_kernel(const Args)
  std::vector<HostFile> files;
};

// Compiles the unchanged text behind an entry, kHostEntrySymbol. A warning is
// an error. Thread safe.
//
// Errors  kInvalidArgument  the text does not compile; Clang's diagnostics
absl::StatusOr<std::string> CompileHostObject(const HostSource& source);

// What compiles and how, for cache keys: "clang 22.1.8 x86-64-v2 -O0".
std::string HostCompilerVersion();

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_HOST_CLANG_COMPILER_H_
