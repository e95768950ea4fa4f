#include "compiler/spec/kernel_spec.h"

#include <charconv>
#include <cmath>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/shown.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr int kMaxSparseBlock = 65536;
constexpr int kFp8HeadDim = 128;  // a row of codes is one line of an operand

absl::Status Invalid(absl::string_view asked, absl::string_view supported,
                     absl::string_view advice) {
  return absl::InvalidArgumentError(
      absl::StrCat("SPEC: ", asked, "; supported: ", supported, "; ", advice));
}

absl::Status CheckRange(absl::string_view name, int value, int low, int high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Invalid(absl::StrCat(name, " ", value, " is out of range"),
                 absl::StrCat(low, " to ", high),
                 absl::StrCat("choose a ", name, " in this range"));
}

bool IsAttention(KernelKind kernel) {
  return kernel == KernelKind::kDecode || kernel == KernelKind::kExtend;
}

// A field that the kernel's SPEC does not print has to be at its default, or
// the text would not say what the spec is.
absl::Status CheckAtDefault(const KernelSpec& spec, absl::string_view field,
                            bool at_default) {
  if (at_default) return absl::OkStatus();
  return Invalid(
      absl::StrCat(field, " is set for a ", KernelName(spec.kernel), " kernel"),
      absl::StrCat("a ", KernelName(spec.kernel), " kernel has no ", field),
      absl::StrCat("leave ", field, " at its default"));
}

absl::Status ValidateUnprinted(const KernelSpec& spec) {
  const KernelSpec defaults;
  if (!IsAttention(spec.kernel)) {
    RETURN_IF_ERROR(
        CheckAtDefault(spec, "group", spec.group == defaults.group));
    RETURN_IF_ERROR(CheckAtDefault(spec, "out", spec.out == spec.type));
    RETURN_IF_ERROR(CheckAtDefault(spec, "mask", spec.mask == defaults.mask));
    RETURN_IF_ERROR(
        CheckAtDefault(spec, "window", spec.window == defaults.window));
    RETURN_IF_ERROR(
        CheckAtDefault(spec, "softcap", spec.softcap == defaults.softcap));
    RETURN_IF_ERROR(
        CheckAtDefault(spec, "sinks", spec.sinks == defaults.sinks));
    RETURN_IF_ERROR(
        CheckAtDefault(spec, "alibi", spec.alibi == defaults.alibi));
    RETURN_IF_ERROR(CheckAtDefault(spec, "sparse",
                                   spec.sparse_block == defaults.sparse_block));
    RETURN_IF_ERROR(CheckAtDefault(spec, "score", spec.score.empty()));
  }
  if (spec.kernel != KernelKind::kExtend) {
    RETURN_IF_ERROR(
        CheckAtDefault(spec, "compute", spec.compute == defaults.compute));
  }
  if (spec.kernel != KernelKind::kDecode) {
    RETURN_IF_ERROR(
        CheckAtDefault(spec, "q_max", spec.q_max == defaults.q_max));
  }
  if (spec.kernel == KernelKind::kMerge) {
    RETURN_IF_ERROR(CheckAtDefault(
        spec, "format", spec.k_format == nullptr && spec.v_format == nullptr));
    RETURN_IF_ERROR(CheckAtDefault(spec, "page_size", spec.page_size == 0));
    RETURN_IF_ERROR(
        CheckAtDefault(spec, "order", spec.order == defaults.order));
    RETURN_IF_ERROR(
        CheckAtDefault(spec, "dv", spec.v_head_dim == spec.head_dim));
  }
  return absl::OkStatus();
}

bool IsScoreDigest(absl::string_view text) {
  return text.size() == kScoreDigits && absl::c_all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

absl::Status ValidateScore(const KernelSpec& spec) {
  if (spec.score.empty()) return absl::OkStatus();
  if (!IsScoreDigest(spec.score)) {
    return Invalid(absl::StrCat("score '", Shown(spec.score), "'"),
                   absl::StrCat("the digest of a score function, ",
                                kScoreDigits, " digits 0-9a-f"),
                   "take what `kvforge score FILE` prints");
  }
  if (spec.softcap != 0 || spec.alibi) {
    return Invalid(
        absl::StrCat("score beside ", spec.alibi ? "alibi" : "softcap"),
        "a score function in place of softcap and alibi",
        "write them in the function");
  }
  return absl::OkStatus();
}

// Formats whose codes are operands of fp8 products as they are, and whose
// scales go to scores, weights or the output.
bool IsFp8Operand(const KvFormat& format) {
  return format.element == Element::kE4m3 &&
         format.block_scale == BlockScale::kNone &&
         format.given_scale != GivenScale::kChannel;
}

absl::Status ValidateFp8(const KernelSpec& spec) {
  const auto refuse = [](const std::string& asked, absl::string_view served) {
    return absl::UnimplementedError(absl::StrCat(
        "SPEC: compute=fp8 with ", asked, " is not served; served: ", served,
        "; leave compute out, or choose one of these"));
  };
  for (const KvFormat* format : {spec.k_format, spec.v_format}) {
    if (IsFp8Operand(*format)) continue;
    std::string formats;
    for (const KvFormat& other : kFormats) {
      if (!IsFp8Operand(other)) continue;
      absl::StrAppend(&formats, formats.empty() ? "" : ", ", other.name);
    }
    return refuse(absl::StrCat("format ", format->name), formats);
  }
  for (const int head_dim : {spec.head_dim, spec.v_head_dim}) {
    if (head_dim == kFp8HeadDim) continue;
    return refuse(absl::StrCat("head_dim ", head_dim),
                  absl::StrCat("head_dim ", kFp8HeadDim));
  }
  if (spec.sparse_block != 0) {
    return refuse(absl::StrCat("sparse=", spec.sparse_block),
                  "all keys, window and mask=custom");
  }
  return absl::OkStatus();
}

std::string ShortestNumber(float value) {
  char buffer[32];
  const std::to_chars_result end =
      std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, end.ptr);
}

}  // namespace

std::string KernelSpec::Text() const {
  if (kernel == KernelKind::kMerge) {
    return absl::StrCat("merge/d", head_dim, "/", DTypeName(type));
  }
  std::string text = absl::StrCat(
      KernelName(kernel), "/", k_format != nullptr ? k_format->name : "", "/d",
      head_dim, "/g", group, "/page", page_size, "/", DTypeName(type));
  // Keys in alphabetical order.
  if (alibi) absl::StrAppend(&text, "/alibi=1");
  if (compute == Compute::kFp8) absl::StrAppend(&text, "/compute=fp8");
  if (v_head_dim != head_dim) absl::StrAppend(&text, "/dv=", v_head_dim);
  if (mask == MaskKind::kFull) absl::StrAppend(&text, "/mask=full");
  if (mask == MaskKind::kCustom) absl::StrAppend(&text, "/mask=custom");
  if (order == SlotOrder::kHnd) absl::StrAppend(&text, "/order=hnd");
  if (out != type) absl::StrAppend(&text, "/out=", DTypeName(out));
  if (q_max != 1) absl::StrAppend(&text, "/q_max=", q_max);
  if (!score.empty()) absl::StrAppend(&text, "/score=", score);
  if (sinks) absl::StrAppend(&text, "/sinks=1");
  if (softcap != 0)
    absl::StrAppend(&text, "/softcap=", ShortestNumber(softcap));
  if (sparse_block != 0) absl::StrAppend(&text, "/sparse=", sparse_block);
  if (v_format != k_format) {
    absl::StrAppend(&text, "/v=", v_format != nullptr ? v_format->name : "");
  }
  if (window != 0) absl::StrAppend(&text, "/window=", window);
  return text;
}

absl::Status ValidateSpec(const KernelSpec& spec) {
  RETURN_IF_ERROR(ValidateUnprinted(spec));
  if (spec.kernel == KernelKind::kMerge) {
    if (IsSupportedHeadDim(spec.head_dim)) return absl::OkStatus();
    return Invalid(absl::StrCat("head_dim ", spec.head_dim, " of merge"),
                   "multiples of 16 from 64 to 256, and 512",
                   "use the V head_dim of the kernel whose parts are merged");
  }
  if (spec.k_format == nullptr || spec.v_format == nullptr) {
    return Invalid("a format is missing", "one format for K and one for V",
                   "take them from FindFormat");
  }
  RETURN_IF_ERROR(CheckFormat(*spec.k_format, spec.head_dim));
  RETURN_IF_ERROR(CheckFormat(*spec.v_format, spec.v_head_dim));
  RETURN_IF_ERROR(CheckRange("page size", spec.page_size, 1, kMaxPageSize));
  if (!IsAttention(spec.kernel)) return absl::OkStatus();

  RETURN_IF_ERROR(CheckRange("group", spec.group, 1, kMaxGroup));
  RETURN_IF_ERROR(CheckRange("q_max", spec.q_max, 1, kMaxDecodeTokens));
  if (spec.window < 0) {
    return Invalid(absl::StrCat("window ", spec.window),
                   "0 (none) or the number of last keys a query sees",
                   "give a window that is not negative");
  }
  if (spec.sparse_block < 0 || spec.sparse_block > kMaxSparseBlock) {
    return Invalid(absl::StrCat("sparse ", spec.sparse_block),
                   absl::StrCat("0 (all keys) or the tokens of a block, 1 to ",
                                kMaxSparseBlock),
                   "give the block length of the selection");
  }
  if (!std::isfinite(spec.softcap) || spec.softcap < 0 ||
      std::signbit(spec.softcap)) {
    return Invalid(absl::StrCat("softcap ", spec.softcap),
                   "0 (none) or a positive finite number",
                   "give the model's soft cap, such as 30");
  }
  if (IsFp8(spec)) RETURN_IF_ERROR(ValidateFp8(spec));
  return ValidateScore(spec);
}

absl::string_view KernelName(KernelKind kernel) {
  switch (kernel) {
    case KernelKind::kStore:
      return "store";
    case KernelKind::kDecode:
      return "decode";
    case KernelKind::kExtend:
      return "extend";
    case KernelKind::kMerge:
      return "merge";
    case KernelKind::kGather:
      return "gather";
  }
  return "";
}

absl::string_view DTypeName(DType type) {
  switch (type) {
    case DType::kF32:
      return "f32";
    case DType::kBf16:
      return "bf16";
    case DType::kF16:
      return "f16";
  }
  return "";
}

int DTypeBytes(DType type) { return type == DType::kF32 ? 4 : 2; }

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  for (DType type : {DType::kF32, DType::kBf16, DType::kF16}) {
    if (DTypeName(type) == name) return type;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "type '", Shown(name), "' is not known; supported: bf16, f16, f32",
      "; convert to one of these"));
}

}  // namespace kvforge
