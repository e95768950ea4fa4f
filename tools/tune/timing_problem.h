// The inputs of timed launches: a cache of valid rows several times the size of
// the L2 cache, in page sets that launches take in rotation.
#ifndef KVFORGE_TOOLS_TUNE_TIMING_PROBLEM_H_
#define KVFORGE_TOOLS_TUNE_TIMING_PROBLEM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cache_geometry.h"
#include "kernels/engine.h"
#include "kernels/target_memory.h"
#include "runtime/tune/shape.h"
#include "templates/kernels/attention_args.h"
#include "tools/attention_case.h"

namespace kvforge::tune {

class TimingProblem {
 public:
  // All sequences have the shape's lengths. A custom mask shows every key, a
  // selection every other block. `l2_bytes` of the device; the page sets hold
  // four times as much, at least two sets. kResourceExhausted where the
  // device's memory is too small.
  static absl::StatusOr<std::unique_ptr<TimingProblem>> Create(
      const Engine& engine, const KernelSpec& spec, const TuneShape& shape,
      int64_t l2_bytes);

  // Over the set of pages number `index` modulo those there are. No outputs.
  AttentionArgs Args(int64_t index) const;
  // Codes and scales that one launch reads.
  int64_t launch_bytes() const { return launch_bytes_; }
  int64_t sets() const { return sets_; }

 private:
  TimingProblem(const Engine& engine, const KernelSpec& spec,
                const TuneShape& shape)
      : engine_(engine), spec_(spec), shape_(shape) {}
  absl::Status FillCache(int64_t num_pages);
  absl::Status UploadLists(int64_t num_pages);

  const Engine& engine_;
  const KernelSpec spec_;
  const TuneShape shape_;
  AttentionCase rows_;  // a few valid rows, repeated over the cache
  CacheGeometry geometry_;
  int64_t width_ = 0;  // pages of a sequence
  int64_t sets_ = 0;
  int64_t launch_bytes_ = 0;
  int selected_per_head_ = 0;
  TargetBuffer planes_[2][3];  // [CacheSide][PlaneKind]
  TargetBuffer given_[2];      // head or channel scales
  TargetBuffer q_, q_indptr_, kv_lens_, page_tables_, sinks_, slopes_, mask_,
      mask_indptr_, selected_;
};

}  // namespace kvforge::tune

#endif  // KVFORGE_TOOLS_TUNE_TIMING_PROBLEM_H_
