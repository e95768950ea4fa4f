#include "tools/bench/counts.h"

namespace kvforge::bench {
namespace {

constexpr int64_t kSlotBytes = 8;

// Keys that the queries of one sequence see, summed: query i of m sees
// n - m + i + 1.
double CausalPairs(double m, double n) { return m * n - m * (m - 1) / 2; }

}  // namespace

int64_t CountedBytes(const BenchCase& bench_case) {
  const int64_t row_bytes = bench_case.format->RowBytes(bench_case.head_dim);
  const int64_t token_bytes = 2 * kKvHeads * row_bytes;  // K and V
  switch (bench_case.kind) {
    case CaseKind::kDecode:
    case CaseKind::kExtend:
      return bench_case.KvTokens() * token_bytes;
    case CaseKind::kStore: {
      const int64_t source_bytes = 2 * kKvHeads * bench_case.head_dim *
                                   DTypeBytes(bench_case.Spec().type);
      return bench_case.KvTokens() * (source_bytes + token_bytes + kSlotBytes);
    }
    case CaseKind::kLaunch:
    case CaseKind::kPrepare:
    case CaseKind::kFetch:
    case CaseKind::kSpecialise:
      break;
  }
  return 0;
}

double CountedFlops(const BenchCase& bench_case) {
  if (bench_case.kind != CaseKind::kDecode &&
      bench_case.kind != CaseKind::kExtend) {
    return 0;
  }
  double pairs = 0;
  for (const int kv_len : bench_case.KvLens()) {
    pairs += CausalPairs(bench_case.q_len, kv_len);
  }
  return 4.0 * bench_case.head_dim * bench_case.num_q_heads() * pairs;
}

}  // namespace kvforge::bench
