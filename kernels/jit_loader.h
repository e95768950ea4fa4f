// libkvforge_jit, opened by name on the first miss: the compiler and the host
// target behind kernels/jit_api.h. A process whose kernels are all in a cache
// and whose target is a GPU never opens it.
#ifndef KVFORGE_KERNELS_JIT_LOADER_H_
#define KVFORGE_KERNELS_JIT_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/jit_api.h"
#include "runtime/cache/entry.h"

namespace kvforge {

struct JitRequest {
  std::string spec;      // canonical
  std::string tile;      // Tile::Text()
  std::string gpu;       // "sm_89"
  std::string target;    // "cuda" or "host"
  std::string overlay;   // folder of templates; "" = none
  std::string dump_dir;  // "" = none
  std::string score;     // MLIR of the SPEC's score function; "" = none
};

// A user's score function: canonical MLIR, and the digest a SPEC has of it.
struct ScoreText {
  std::string text;
  std::string digest;
};

class JitLibrary;

// A compiled object of the host target. Launches may run in parallel.
class HostKernel {
 public:
  HostKernel(std::shared_ptr<const JitLibrary> library,
             kvforge_jit_host_module* module)
      : library_(std::move(library)), module_(module) {}
  ~HostKernel();
  HostKernel(const HostKernel&) = delete;
  HostKernel& operator=(const HostKernel&) = delete;

  // Runs the whole grid on this thread. *shared_high_water: one past the
  // highest shared byte accessed.
  absl::Status Run(const kvforge_jit_host_launch& launch,
                   int* shared_high_water) const;

 private:
  std::shared_ptr<const JitLibrary> library_;
  kvforge_jit_host_module* module_;
};

// Thread safe. Once opened it stays open for the life of the process.
class JitLibrary : public std::enable_shared_from_this<JitLibrary> {
 public:
  // `path` "": libkvforge_jit.so in the folder of the binary that this code is
  // in, or in ../lib from there. kUnavailable lists where it was looked for;
  // kFailedPrecondition if its interface is of another version.
  static absl::StatusOr<std::shared_ptr<const JitLibrary>> Open(
      const std::string& path);

  // An entry with everything but its key.
  absl::StatusOr<Entry> Compile(const JitRequest& request) const;
  absl::StatusOr<std::string> Emit(const JitRequest& request,
                                   const std::string& stage) const;
  // kInvalidArgument for text that is no score function.
  absl::StatusOr<ScoreText> ReadScore(absl::string_view text) const;
  absl::StatusOr<std::unique_ptr<HostKernel>> LoadHost(
      absl::string_view object, const std::string& symbol) const;
  const std::string& path() const { return path_; }

 private:
  friend class HostKernel;
  JitLibrary() = default;
  // The status of a call's code and the message it left in *error, which is
  // freed. By address: the call that sets it may be the other argument.
  absl::Status Take(int code, char** error) const;

  std::string path_;
  decltype(&kvforge_jit_compile) compile_ = nullptr;
  decltype(&kvforge_jit_emit) emit_ = nullptr;
  decltype(&kvforge_jit_score) score_ = nullptr;
  decltype(&kvforge_jit_free) free_ = nullptr;
  decltype(&kvforge_jit_host_load) host_load_ = nullptr;
  decltype(&kvforge_jit_host_run) host_run_ = nullptr;
  decltype(&kvforge_jit_host_unload) host_unload_ = nullptr;
};

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_JIT_LOADER_H_
