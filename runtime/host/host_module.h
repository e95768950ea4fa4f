// A compiled kernel of the host target, loaded into this process.
#ifndef KVFORGE_RUNTIME_HOST_HOST_MODULE_H_
#define KVFORGE_RUNTIME_HOST_HOST_MODULE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/host/executor.h"

namespace kvforge {

class HostModule {
 public:
  // `object` as CompileHostObject gives it; copied. kInvalidArgument if it
  // cannot be linked or lacks `entry_symbol`.
  static absl::StatusOr<std::unique_ptr<HostModule>> Load(
      absl::string_view object, absl::string_view entry_symbol);
  ~HostModule();

  // Constants of the text; -1 where it has none.
  int shared_bytes() const { return shared_bytes_; }    // kvforge_shared_bytes
  int block_threads() const { return block_threads_; }  // kvforge_block_threads

  // Runs a launch to its end on the caller's thread; see RunOnFibers. Launches
  // may run on several threads at once.
  absl::StatusOr<HostRun> Run(const HostLaunch& launch) const;

 private:
  struct Code;
  explicit HostModule(std::unique_ptr<Code> code);

  std::unique_ptr<Code> code_;
  HostEntry entry_ = nullptr;
  int shared_bytes_ = -1;
  int block_threads_ = -1;
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_HOST_HOST_MODULE_H_
