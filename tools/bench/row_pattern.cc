#include "tools/bench/row_pattern.h"

#include "compiler/formats/codec.h"
#include "tools/bench/cache_planes.h"
#include "tools/bench/case_table.h"
#include "tools/bench/random_fill.h"

namespace kvforge::bench {
namespace {

constexpr int64_t kQueryElements = int64_t{1} << 20;

int64_t RowIndex(int64_t token, int head) {
  return token % kPatternTokens * kKvHeads + head;
}

}  // namespace

RowPattern::RowPattern(const KvFormat& format, int head_dim)
    : head_dim_(head_dim) {
  uint64_t seed = 1;
  std::vector<float> row(head_dim);
  for (Side& side : sides_) {
    const int64_t rows = int64_t{kPatternTokens} * kKvHeads;
    side.source = NormalBf16(rows * head_dim, seed++);
    side.decoded.reserve(side.source.size());
    for (int64_t i = 0; i < rows; ++i) {
      for (int d = 0; d < head_dim; ++d) {
        row[d] = DecodeBf16(side.source[i * head_dim + d]);
      }
      side.stored.push_back(QuantizeRow(format, row, kGivenScale));
      const std::vector<double> values =
          DequantizeRow(format, side.stored.back(), kGivenScale);
      side.decoded.insert(side.decoded.end(), values.begin(), values.end());
    }
  }
  query_ = NormalBf16(kQueryElements, seed);
}

const QuantizedRow& RowPattern::stored(CacheSide side, int64_t token,
                                       int head) const {
  return sides_[static_cast<int>(side)].stored[RowIndex(token, head)];
}

absl::Span<const double> RowPattern::decoded(CacheSide side, int64_t token,
                                             int head) const {
  const Side& rows = sides_[static_cast<int>(side)];
  return absl::MakeConstSpan(rows.decoded)
      .subspan(RowIndex(token, head) * head_dim_, head_dim_);
}

}  // namespace kvforge::bench
