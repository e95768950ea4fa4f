// A case's inputs, a poisoned cache and outputs on an engine's target, and the
// launches over them. Tests change the arguments before they launch.
#ifndef KVFORGE_TOOLS_CASE_ON_TARGET_H_
#define KVFORGE_TOOLS_CASE_ON_TARGET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/decode.h"
#include "kernels/engine.h"
#include "kernels/target_memory.h"
#include "templates/kernels/store_args.h"
#include "tools/attention_case.h"
#include "tools/paged_cache.h"
#include "tools/tolerance.h"

namespace kvforge {

class CaseOnTarget {
 public:
  // All three must outlive the result.
  static absl::StatusOr<std::unique_ptr<CaseOnTarget>> Create(
      const Engine& engine, const AttentionCase& problem,
      const CaseLayout& layout);

  StoreArgs StoreArguments() const;
  AttentionArgs AttentionArguments() const;

  // Each waits until the kernel is done. Outputs are poisoned before.
  absl::Status Store(const PreparedKernel& kernel, const StoreArgs& args);
  absl::Status Extend(const PreparedKernel& kernel, const AttentionArgs& args);
  // Extend on images, a tile of keys of all kv heads a pass.
  absl::Status ExtendInPasses(const PreparedKernel& kernel,
                              const AttentionArgs& args);
  // Over CutGrid(kernel, args, cuts).
  absl::Status Decode(const PreparedKernel& kernel, const AttentionArgs& args,
                      int cuts);
  absl::Status Decode(const PreparedKernel& kernel, const AttentionArgs& args,
                      const DecodeGrid& grid);
  // Cuts every unit of work into `cuts` parts or about that: 1 gives one block.
  DecodeGrid CutGrid(const PreparedKernel& kernel, const AttentionArgs& args,
                     int cuts) const;

  // Queues decode on `stream` (a CUstream) and returns, for graphs and timing.
  // The workspace is this object's and grows with the largest call so far, so
  // a captured graph is good until a larger one.
  absl::Status QueueDecode(const PreparedKernel& kernel,
                           const AttentionArgs& args, const DecodeGrid& grid,
                           void* stream);
  absl::Status PoisonOutputs();

  absl::Status CheckStored() const;
  // Compares what the last attention kernel wrote to out and lse.
  absl::StatusOr<ErrorReport> Compare(bool padding_kept) const;
  absl::StatusOr<std::vector<uint8_t>> Out() const;
  absl::StatusOr<std::vector<float>> Lse() const;

  const PagedCache& cache() const { return cache_; }

 private:
  CaseOnTarget(const Engine& engine, const AttentionCase& problem,
               const CaseLayout& layout)
      : engine_(engine), problem_(problem), layout_(layout) {}

  absl::Status Upload();
  absl::Status ExtendIn(int64_t workspace_bytes, int64_t kv_tokens,
                        const PreparedKernel& kernel,
                        const AttentionArgs& args);
  int64_t KvTokens() const;  // of all sequences
  CacheView View(CacheSide side) const;
  SourceRows Source(const TargetBuffer& buffer, const CaseSide& side,
                    int64_t pad) const;
  int64_t SourceRowBytes(const CaseSide& side) const;
  int64_t QueryRowBytes() const;

  const Engine& engine_;
  const AttentionCase& problem_;
  const CaseLayout& layout_;
  PagedCache cache_;
  TargetBuffer k_source_, v_source_, q_, slots_, page_table_, kv_lens_,
      q_indptr_, sinks_, alibi_slopes_, custom_mask_, mask_indptr_, selected_,
      k_scales_, v_scales_, out_, lse_, workspace_;
};

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_CASE_ON_TARGET_H_
