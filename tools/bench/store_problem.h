// One store case: source rows, a poisoned cache and sets of slots in random
// page order that launches take in rotation.
#ifndef KVFORGE_TOOLS_BENCH_STORE_PROBLEM_H_
#define KVFORGE_TOOLS_BENCH_STORE_PROBLEM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/target_memory.h"
#include "templates/kernels/store_args.h"
#include "tools/bench/cache_planes.h"
#include "tools/bench/case_table.h"
#include "tools/bench/row_pattern.h"

namespace kvforge::bench {

class StoreProblem {
 public:
  // Room for at least two sets, and for `cache_bytes` of cache rows if that is
  // more.
  static absl::StatusOr<std::unique_ptr<StoreProblem>> Create(
      const Engine& engine, const BenchCase& bench_case, int64_t cache_bytes);

  // Into the set of slots number `index` modulo those there are.
  StoreArgs Args(int64_t index) const;
  // Part of the sampled rows of set 0 that are not exactly what the host's
  // codec says: 0 = all are.
  absl::StatusOr<double> WrongPart() const;

 private:
  explicit StoreProblem(const BenchCase& bench_case)
      : case_(bench_case), pattern_(*bench_case.format, bench_case.head_dim) {}
  absl::Status Upload(const Engine& engine);

  const BenchCase case_;
  const RowPattern pattern_;
  int64_t sets_ = 0;
  std::vector<int64_t> slots_;  // [sets, tokens]
  CachePlanes planes_;
  TargetBuffer sources_[2], slot_buffer_;
};

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_STORE_PROBLEM_H_
