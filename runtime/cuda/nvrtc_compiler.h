// CUDA C++ text to a cubin for one exact GPU, in this process, through an NVRTC
// that is opened by name: needs no GPU, no driver and no CUDA header.
#ifndef KVFORGE_RUNTIME_CUDA_NVRTC_COMPILER_H_
#define KVFORGE_RUNTIME_CUDA_NVRTC_COMPILER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/knobs.h"
#include "runtime/cuda/compile_options.h"
#include "runtime/cuda/cubin_facts.h"

namespace kvforge {

// A file that the text includes, by the path it is included as.
struct NvrtcHeader {
  std::string path;
  std::string text;
};

struct NvrtcInput {
  std::string name;  // of the text in messages: "decode.cu"
  std::string source;
  std::vector<NvrtcHeader> headers;
  std::string arch;    // exact: "sm_90a"
  std::string kernel;  // entry symbol whose facts are wanted
  std::vector<std::string> options = CudaCompileOptions();
};

struct NvrtcOutput {
  std::string cubin;
  CubinFacts facts;
  int static_shared_bytes = 0;
  int spill_bytes = 0;     // stores and loads, a thread
  int shared_bytes = -1;   // constant kvforge_shared_bytes; -1 without it
  int block_threads = -1;  // constant kvforge_block_threads; -1 without it
  std::string compiler;    // "nvrtc 13.0"
  std::string log;
};

struct NvrtcLibrary;

// Thread safe; compiles run in parallel.
class NvrtcCompiler {
 public:
  // Opens libnvrtc: of knobs.cuda_home, then by the loader's own search, then
  // of /usr/local/cuda*; version 13 before 12. kUnavailable lists where it was
  // looked for. The library stays open for the life of the process.
  static absl::StatusOr<std::unique_ptr<NvrtcCompiler>> Open(
      const Knobs& knobs);
  ~NvrtcCompiler();

  // Errors  kInternal       the source does not compile, or compiles with a
  //                         warning: the options and the log
  //         kUnimplemented  this NVRTC does not know the arch; lists those it
  //                         knows
  absl::StatusOr<NvrtcOutput> Compile(const NvrtcInput& input) const;

  // The PTX that Compile would pass on to the assembler; the same errors.
  absl::StatusOr<std::string> Ptx(const NvrtcInput& input) const;

  const std::string& compiler() const { return compiler_; }  // "nvrtc 13.0"
  const std::string& path() const { return path_; }  // that the loader opened
  // Compute capabilities it knows, ascending: 75, 80, ...
  const std::vector<int>& archs() const { return archs_; }

 private:
  NvrtcCompiler() = default;

  std::unique_ptr<NvrtcLibrary> library_;
  std::string path_;
  std::string compiler_;
  std::vector<int> archs_;
  bool caches_ = false;  // NVRTC has a cache of its own
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CUDA_NVRTC_COMPILER_H_
