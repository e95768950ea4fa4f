#include "compiler/formats/format.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/shown.h"

namespace kvforge {
namespace {

std::string FormatNames(bool served_only) {
  std::vector<absl::string_view> names;
  for (const KvFormat& format : kFormats) {
    if (format.served || !served_only) names.push_back(format.name);
  }
  return absl::StrJoin(names, ", ");
}

// The next supported head_dim that is a multiple of `block`; 0 = none.
int NextHeadDim(int head_dim, int block) {
  for (int next = head_dim < 1 ? 1 : head_dim; next <= 512; ++next) {
    if (IsSupportedHeadDim(next) && (block == 0 || next % block == 0)) {
      return next;
    }
  }
  return 0;
}

std::string PaddingAdvice(int head_dim, int block) {
  const int next = NextHeadDim(head_dim, block);
  if (head_dim < 1 || next == 0) return "; use one of these head_dims";
  return absl::StrCat("; zero-pad q, k and v to ", next,
                      " and keep the softmax scale of head_dim ", head_dim);
}

}  // namespace

absl::string_view ElementName(Element element) {
  switch (element) {
    case Element::kBf16:
      return "bf16";
    case Element::kF16:
      return "f16";
    case Element::kE4m3:
      return "e4m3";
    case Element::kE5m2:
      return "e5m2";
    case Element::kE2m1:
      return "e2m1";
    case Element::kInt8:
      return "int8";
    case Element::kUint4:
      return "uint4";
  }
  return "";
}

absl::StatusOr<const KvFormat*> FindFormat(absl::string_view name) {
  for (const KvFormat& format : kFormats) {
    if (format.name == name) return &format;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "format '", Shown(name), "' does not exist; the formats are ",
      FormatNames(/*served_only=*/false), "; kernels are generated for ",
      FormatNames(/*served_only=*/true), ": use one of these"));
}

absl::Status CheckFormat(const KvFormat& format, int head_dim) {
  if (!format.served) {
    return absl::UnimplementedError(absl::StrCat(
        "format ", format.name, " is named but not served in this version",
        "; served formats: ", FormatNames(/*served_only=*/true),
        "; store the cache in one of these"));
  }
  if (!IsSupportedHeadDim(head_dim)) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_dim ", head_dim, " with format ", format.name,
                     " is not supported; supported are the multiples of 16 "
                     "from 64 to 256, and 512",
                     PaddingAdvice(head_dim, format.block)));
  }
  if (format.block != 0 && head_dim % format.block != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_dim ", head_dim, " with format ", format.name,
                     " is not supported: a block scale covers ", format.block,
                     " elements; supported head_dims are multiples of ",
                     format.block, PaddingAdvice(head_dim, format.block)));
  }
  return absl::OkStatus();
}

}  // namespace kvforge
