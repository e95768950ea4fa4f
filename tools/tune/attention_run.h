// One launch of decode or extend whose outputs lie between red zones.
#ifndef KVFORGE_TOOLS_TUNE_ATTENTION_RUN_H_
#define KVFORGE_TOOLS_TUNE_ATTENTION_RUN_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/decode.h"
#include "kernels/engine.h"
#include "runtime/tune/timing.h"
#include "templates/kernels/attention_args.h"
#include "tools/tune/red_zone.h"

namespace kvforge::tune {

class AttentionRun {
 public:
  // Outputs for `args`, which has everything else; of decode also the grid that
  // `parts` name, or the library's, and its workspace. The engine and the
  // kernel outlive the result.
  static absl::StatusOr<std::unique_ptr<AttentionRun>> Create(
      const Engine& engine, const PreparedKernel& kernel,
      const CandidateParts& parts, const AttentionArgs& args);

  // Poisons the outputs, launches and waits. kDataLoss if a red zone was
  // written, or a counter of decode is not 0 at the end.
  absl::Status RunOnce(const AttentionArgs& args);
  // Only queues: for timing. `args` may differ in what it reads.
  absl::Status Queue(const AttentionArgs& args, void* stream) const;

  const RedZonedBuffer& out() const { return out_; }
  const RedZonedBuffer& lse() const { return lse_; }

 private:
  AttentionRun(const Engine& engine, const PreparedKernel& kernel)
      : engine_(engine), kernel_(kernel) {}

  const Engine& engine_;
  const PreparedKernel& kernel_;
  DecodeGrid grid_;
  RedZonedBuffer out_, lse_, workspace_;
};

}  // namespace kvforge::tune

#endif  // KVFORGE_TOOLS_TUNE_ATTENTION_RUN_H_
