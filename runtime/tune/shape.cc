#include "runtime/tune/shape.h"

#include <bit>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/shown.h"

namespace kvforge {
namespace {

constexpr int kMostOfOne = 1 << 24;  // more than any of the numbers can be

bool ReadPart(absl::string_view part, absl::string_view prefix, int* value) {
  return absl::ConsumePrefix(&part, prefix) && absl::SimpleAtoi(part, value) &&
         *value >= 1 && *value <= kMostOfOne;
}

int RoundUp(int value) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(value)));
}

}  // namespace

std::string TuneShape::Text() const {
  return absl::StrCat("b", batch, "/h", num_kv_heads, "/q", q_len, "/kv",
                      kv_len);
}

TuneShape TuneShape::Bucket() const {
  return {RoundUp(batch), RoundUp(num_kv_heads), RoundUp(q_len),
          RoundUp(kv_len)};
}

absl::StatusOr<TuneShape> ParseShape(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  TuneShape shape;
  if (parts.size() == 4 && ReadPart(parts[0], "b", &shape.batch) &&
      ReadPart(parts[1], "h", &shape.num_kv_heads) &&
      ReadPart(parts[2], "q", &shape.q_len) &&
      ReadPart(parts[3], "kv", &shape.kv_len) && shape.q_len <= shape.kv_len) {
    return shape;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "shape '", Shown(text),
      "' cannot be read; supported: bBATCH/hKV_HEADS/qTOKENS/kvTOKENS, each at "
      "least 1, with no more query tokens than cached ones, such as "
      "b64/h8/q1/kv8192; write it in this form"));
}

}  // namespace kvforge
