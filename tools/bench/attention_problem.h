// One attention case over a pool: queries, lengths and several sets of page
// tables that share no page, so that launches in rotation find nothing of
// theirs in a cache.
#ifndef KVFORGE_TOOLS_BENCH_ATTENTION_PROBLEM_H_
#define KVFORGE_TOOLS_BENCH_ATTENTION_PROBLEM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/target_memory.h"
#include "templates/kernels/attention_args.h"
#include "tools/bench/cache_pool.h"
#include "tools/bench/case_table.h"

namespace kvforge::bench {

class AttentionProblem {
 public:
  // The pool holds the case's format and at least its tokens, and outlives it.
  static absl::StatusOr<std::unique_ptr<AttentionProblem>> Create(
      const Engine& engine, const CachePool& pool, const BenchCase& bench_case);

  // Over the set of page tables number `index` modulo those there are.
  AttentionArgs Args(int64_t index) const;

  absl::Status PoisonOut();
  // Largest max |o - ref| / max |ref| over sampled (query token, head) rows of
  // what a launch over set 0 left in `out`; the reference is double precision
  // over the decoded cache. Infinite where a sampled row is not finite.
  absl::StatusOr<double> SampledError() const;

 private:
  AttentionProblem(const CachePool& pool, const BenchCase& bench_case)
      : pool_(pool), case_(bench_case), kv_lens_(bench_case.KvLens()) {}
  absl::Status Upload(const Engine& engine);
  absl::Status PlacePages(const Engine& engine);

  struct Sample {
    int sequence;
    int token;    // of the sequence's queries
    int kv_head;  // all query heads of it are compared
  };
  std::vector<Sample> Samples() const;
  double ErrorOf(const Sample& sample, const std::vector<uint16_t>& out) const;

  const CachePool& pool_;
  const BenchCase case_;
  const std::vector<int> kv_lens_;
  std::vector<int32_t> page_table_;  // [sets, batch, width]
  int64_t sets_ = 0;
  int64_t width_ = 0;  // pages of the longest sequence
  TargetBuffer q_, out_, q_indptr_, kv_lens_buffer_, page_tables_;
};

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_ATTENTION_PROBLEM_H_
