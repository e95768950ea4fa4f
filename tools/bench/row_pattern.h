// The K and V rows of every case: 1,024 tokens of normally distributed rows,
// repeated as often as a cache has room for. Repeating them makes the contents
// of gigabytes known on the host: token t holds row t % kPatternTokens.
#ifndef KVFORGE_TOOLS_BENCH_ROW_PATTERN_H_
#define KVFORGE_TOOLS_BENCH_ROW_PATTERN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compiler/formats/format.h"
#include "compiler/formats/row_codec.h"
#include "kernels/cache_geometry.h"

namespace kvforge::bench {

inline constexpr int kPatternTokens = 1024;

class RowPattern {
 public:
  // Quantizes as the store kernel must; some 0.1 s.
  RowPattern(const KvFormat& format, int head_dim);

  // bf16 [kPatternTokens, kKvHeads, head_dim].
  const std::vector<uint16_t>& source(CacheSide side) const {
    return sides_[static_cast<int>(side)].source;
  }
  const QuantizedRow& stored(CacheSide side, int64_t token, int head) const;
  // bf16; q of every case is this, repeated.
  const std::vector<uint16_t>& query() const { return query_; }
  // [head_dim]
  absl::Span<const double> decoded(CacheSide side, int64_t token,
                                   int head) const;

 private:
  struct Side {
    std::vector<uint16_t> source;
    std::vector<QuantizedRow> stored;  // [kPatternTokens, kKvHeads]
    std::vector<double> decoded;       // [kPatternTokens, kKvHeads, head_dim]
  };

  int head_dim_;
  Side sides_[2];
  std::vector<uint16_t> query_;
};

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_ROW_PATTERN_H_
