// A cache of known contents in random page order, which the attention cases of
// one format share: slot s holds row s of the pattern.
#ifndef KVFORGE_TOOLS_BENCH_CACHE_POOL_H_
#define KVFORGE_TOOLS_BENCH_CACHE_POOL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/engine.h"
#include "tools/bench/cache_planes.h"
#include "tools/bench/row_pattern.h"

namespace kvforge::bench {

class CachePool {
 public:
  // Room for `tokens`, rounded up to whole patterns, filled by the store kernel
  // FillSpec and then checked row by row on a sample. kDataLoss if a sampled
  // row is not what the host's codec says.
  static absl::StatusOr<std::unique_ptr<CachePool>> Create(
      Engine& engine, const KvFormat& format, int head_dim, int64_t tokens);

  const CachePlanes& planes() const { return planes_; }
  const RowPattern& pattern() const { return pattern_; }
  int64_t num_slots() const { return planes_.num_slots(); }
  // All pages, in the random order that cases take them in.
  std::vector<int32_t> ShuffledPages(int page_size) const;

 private:
  CachePool(CachePlanes planes, const KvFormat& format, int head_dim)
      : planes_(std::move(planes)), pattern_(format, head_dim) {}
  absl::Status Store(Engine& engine);
  absl::Status CheckSample() const;

  CachePlanes planes_;
  RowPattern pattern_;
};

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_CACHE_POOL_H_
