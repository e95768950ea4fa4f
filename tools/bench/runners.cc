#include "tools/bench/runners.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/cuda/device.h"
#include "tools/bench/counts.h"

namespace kvforge::bench {
namespace {

// Ten times what the kernels promise: beyond it the kernel is wrong and its
// speed means nothing.
constexpr double kWrong = 0.05;
constexpr double kWrongInFp8 = 0.12;  // docs/formats.md

constexpr int64_t kPoolCaches = 4;  // a pool is at least so many L2 caches

}  // namespace

PoolCache::PoolCache(Engine& engine, const std::vector<BenchCase>& cases)
    : engine_(engine) {
  const int64_t l2_bytes =
      engine.device() == nullptr ? 0 : engine.device()->limits().l2_bytes;
  for (const BenchCase& what : cases) {
    int64_t& tokens = tokens_[{what.format, what.head_dim}];
    const int64_t token_bytes =
        2 * kKvHeads * what.format->RowBytes(what.head_dim);
    tokens = std::max(
        {tokens, what.KvTokens(), kPoolCaches * l2_bytes / token_bytes});
  }
}

absl::StatusOr<const CachePool*> PoolCache::Get(const BenchCase& bench_case) {
  const Key key = {bench_case.format, bench_case.head_dim};
  if (key_ != key) {
    key_ = key;
    pool_ = nullptr;  // both at once might not fit
    absl::StatusOr<std::unique_ptr<CachePool>> pool = CachePool::Create(
        engine_, *bench_case.format, bench_case.head_dim, tokens_.at(key));
    status_ = pool.status();
    if (pool.ok()) pool_ = *std::move(pool);
  }
  RETURN_IF_ERROR(status_);
  return pool_.get();
}

CaseResult ResultFor(const BenchCase& what, const LaunchFacts& facts) {
  CaseResult result;
  result.name = what.Name();
  result.bytes = CountedBytes(what);
  result.flops = CountedFlops(what);
  result.registers = facts.registers;
  result.shared_bytes = facts.static_shared_bytes + facts.dynamic_shared_bytes;
  result.spill_bytes = facts.spill_bytes;
  return result;
}

absl::Status CheckAccuracy(const CaseResult& result) {
  const bool fp8 = absl::StartsWith(result.name, "extend-fp8/");
  if (result.accuracy <= (fp8 ? kWrongInFp8 : kWrong)) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("bench: ", result.name, " is wrong: error ", result.accuracy,
                   " against float64; run `kvforge check` on this GPU"));
}

}  // namespace kvforge::bench
