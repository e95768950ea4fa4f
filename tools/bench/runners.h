// One function a kind of case: sets it up, checks what it computes, times it.
#ifndef KVFORGE_TOOLS_BENCH_RUNNERS_H_
#define KVFORGE_TOOLS_BENCH_RUNNERS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/decode.h"
#include "kernels/engine.h"
#include "tools/bench/cache_pool.h"
#include "tools/bench/case_table.h"
#include "tools/bench/report.h"
#include "tools/bench/timing.h"

namespace kvforge::bench {

// The pool of the last format and head_dim that was asked for, large enough for
// every case of a run and for several times the L2 cache.
class PoolCache {
 public:
  PoolCache(Engine& engine, const std::vector<BenchCase>& cases);
  absl::StatusOr<const CachePool*> Get(const BenchCase& bench_case);

 private:
  using Key = std::pair<const KvFormat*, int>;  // format, head_dim

  Engine& engine_;
  std::map<Key, int64_t> tokens_;
  Key key_ = {};
  absl::Status status_;  // of making pool_: a failure is not tried again
  std::unique_ptr<CachePool> pool_;
};

struct GpuRun {
  Engine& engine;
  Timer& timer;
  PoolCache& pools;
  DecodeGrid grid;           // of decode; a 0 in it is as the library chooses
  std::optional<Tile> tile;  // of decode and extend; else the selector's
};

absl::StatusOr<CaseResult> RunDecodeCase(GpuRun& run, const BenchCase& what);
absl::StatusOr<CaseResult> RunExtendCase(GpuRun& run, const BenchCase& what);
absl::StatusOr<CaseResult> RunStoreCase(GpuRun& run, const BenchCase& what);
// `one`: host microseconds of our run call; `row`: of a bare cuLaunchKernel of
// the same kernel, grid and arguments.
absl::StatusOr<CaseResult> RunLaunchCase(GpuRun& run, const BenchCase& what);

// prepare and fetch (prepare_times.h): `one`: microseconds until a kernel is
// ready, `row`: of these until its entry was read and verified.

// `one`: processor microseconds from SPEC to text, `row`: from text to cubin,
// for the GPU named `gpu`. `engine` may be of any target; it is asked
// for its compiler only.
absl::StatusOr<CaseResult> RunSpecialiseCase(Engine& engine,
                                             const std::string& gpu,
                                             const BenchCase& what);

// A result with the case's name and counts, and the facts of its kernel.
CaseResult ResultFor(const BenchCase& what, const LaunchFacts& facts);

// kDataLoss for an error that no rounding explains.
absl::Status CheckAccuracy(const CaseResult& result);

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_RUNNERS_H_
