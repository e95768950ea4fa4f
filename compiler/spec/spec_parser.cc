// ParseSpec: splits the text, reads each part, and leaves ranges and
// combinations to ValidateSpec.
#include <charconv>
#include <cmath>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "compiler/spec/kernel_spec.h"
#include "runtime/base/shown.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr absl::string_view kAttentionForm =
    "KERNEL/FORMAT/dD/gG/pageP/TYPE[/key=value...]";
constexpr absl::string_view kMergeForm = "merge/dD/TYPE";

constexpr absl::string_view kRowKeys[] = {"dv", "order", "v"};
constexpr absl::string_view kDecodeKeys[] = {
    "alibi", "dv",    "mask",    "order",  "out", "q_max",
    "score", "sinks", "softcap", "sparse", "v",   "window"};
constexpr absl::string_view kExtendKeys[] = {
    "alibi", "compute", "dv",      "mask",   "order", "out",
    "score", "sinks",   "softcap", "sparse", "v",     "window"};
// Known to the grammar; no kernel, or no other one, has them.
constexpr absl::string_view kUnservedKeys[] = {"compute", "scales"};

absl::Span<const absl::string_view> ServedKeys(KernelKind kernel) {
  switch (kernel) {
    case KernelKind::kStore:
    case KernelKind::kGather:
      return kRowKeys;
    case KernelKind::kDecode:
      return kDecodeKeys;
    case KernelKind::kExtend:
      return kExtendKeys;
    case KernelKind::kMerge:
      return {};
  }
  return {};
}

absl::Status Invalid(absl::string_view text, absl::string_view asked,
                     absl::string_view supported, absl::string_view advice) {
  return absl::InvalidArgumentError(
      absl::StrCat("SPEC '", Shown(text), "': ", asked,
                   "; supported: ", supported, "; ", advice));
}

absl::Status NotServed(absl::string_view text, absl::string_view asked,
                       absl::string_view supported) {
  return absl::UnimplementedError(absl::StrCat(
      "SPEC '", Shown(text), "': ", asked,
      " is named but not served in this version", "; served: ", supported,
      "; leave it out or choose one of these"));
}

// Digits only: no sign, no space, no more than an int holds.
absl::StatusOr<int> ParseNumber(absl::string_view text, absl::string_view part,
                                absl::string_view digits) {
  int value = 0;
  const char* end = digits.data() + digits.size();
  const std::from_chars_result result =
      std::from_chars(digits.data(), end, value);
  if (digits.empty() || digits[0] == '-' || result.ec != std::errc() ||
      result.ptr != end) {
    return Invalid(text,
                   absl::StrCat("'", Shown(part), "' has no number it can use"),
                   "decimal digits, 0 to 2147483647", "correct the number");
  }
  return value;
}

// The number of a part such as "d128" or "page16".
absl::StatusOr<int> ParsePrefixed(absl::string_view text,
                                  absl::string_view part,
                                  absl::string_view prefix) {
  absl::string_view digits = part;
  if (!absl::ConsumePrefix(&digits, prefix)) {
    return Invalid(text,
                   absl::StrCat("'", Shown(part), "' stands where ", prefix,
                                "NUMBER belongs"),
                   absl::StrCat(kAttentionForm, " and ", kMergeForm),
                   "write the parts in this order");
  }
  return ParseNumber(text, part, digits);
}

absl::StatusOr<float> ParseSoftcap(absl::string_view text,
                                   absl::string_view part,
                                   absl::string_view number) {
  float value = 0;
  const char* end = number.data() + number.size();
  const std::from_chars_result result =
      std::from_chars(number.data(), end, value);
  if (number.empty() || number[0] == '-' || result.ec != std::errc() ||
      result.ptr != end || !std::isfinite(value)) {
    return Invalid(
        text, absl::StrCat("'", Shown(part), "' has no number it can use"),
        "0 (none) or a positive finite f32, such as 30", "correct the number");
  }
  return value;
}

template <typename Enum>
absl::StatusOr<Enum> ParseChoice(
    absl::string_view text, absl::string_view part, absl::string_view value,
    absl::Span<const std::pair<absl::string_view, Enum>> choices) {
  for (const auto& [name, choice] : choices) {
    if (value == name) return choice;
  }
  return Invalid(text, absl::StrCat("'", Shown(part), "' has an unknown value"),
                 absl::StrJoin(choices, ", ",
                               [](std::string* out, const auto& choice) {
                                 absl::StrAppend(out, choice.first);
                               }),
                 "use one of these values");
}

absl::Status CheckKey(const KernelSpec& spec, absl::string_view text,
                      absl::string_view key) {
  const absl::Span<const absl::string_view> served = ServedKeys(spec.kernel);
  if (absl::c_linear_search(served, key)) return absl::OkStatus();
  const std::string keys =
      served.empty() ? absl::StrCat(KernelName(spec.kernel), " takes no keys")
                     : absl::StrCat(KernelName(spec.kernel), " takes the keys ",
                                    absl::StrJoin(served, ", "));
  if (absl::c_linear_search(kUnservedKeys, key)) {
    return NotServed(text, absl::StrCat("key '", Shown(key), "'"), keys);
  }
  const bool of_another_kernel = absl::c_linear_search(kDecodeKeys, key);
  return Invalid(
      text,
      of_another_kernel
          ? absl::StrCat("key '", Shown(key), "' does not belong to ",
                         KernelName(spec.kernel))
          : absl::StrCat("key '", Shown(key), "' is unknown"),
      keys, "leave it out");
}

// Reads "key=value"; `sinks` alone means sinks=1, and `alibi` alone alibi=1.
absl::Status ParseKey(absl::string_view text, absl::string_view part,
                      std::vector<absl::string_view>& seen, KernelSpec& spec) {
  const size_t equals = part.find('=');
  const absl::string_view key = part.substr(0, equals);
  RETURN_IF_ERROR(CheckKey(spec, text, key));
  if (absl::c_linear_search(seen, key)) {
    return Invalid(text, absl::StrCat("key '", Shown(key), "' is given twice"),
                   "each key once", "keep one of the two");
  }
  seen.push_back(key);
  const bool has_value = equals != absl::string_view::npos;
  if (!has_value && key != "sinks" && key != "alibi") {
    return Invalid(text, absl::StrCat("key '", Shown(key), "' has no value"),
                   absl::StrCat(key, "=VALUE"), "give it a value");
  }
  const absl::string_view value = has_value ? part.substr(equals + 1) : "1";

  if (key == "alibi") {
    ASSIGN_OR_RETURN(
        spec.alibi,
        ParseChoice<bool>(text, part, value, {{"0", false}, {"1", true}}));
  } else if (key == "compute") {
    ASSIGN_OR_RETURN(spec.compute,
                     ParseChoice<Compute>(
                         text, part, value,
                         {{"16bit", Compute::k16Bit}, {"fp8", Compute::kFp8}}));
  } else if (key == "dv") {
    ASSIGN_OR_RETURN(spec.v_head_dim, ParseNumber(text, part, value));
  } else if (key == "mask") {
    ASSIGN_OR_RETURN(spec.mask,
                     ParseChoice<MaskKind>(text, part, value,
                                           {{"causal", MaskKind::kCausal},
                                            {"full", MaskKind::kFull},
                                            {"custom", MaskKind::kCustom}}));
  } else if (key == "order") {
    ASSIGN_OR_RETURN(spec.order,
                     ParseChoice<SlotOrder>(
                         text, part, value,
                         {{"nhd", SlotOrder::kNhd}, {"hnd", SlotOrder::kHnd}}));
  } else if (key == "out") {
    ASSIGN_OR_RETURN(spec.out, ParseDType(value));
  } else if (key == "q_max") {
    ASSIGN_OR_RETURN(spec.q_max, ParseNumber(text, part, value));
  } else if (key == "score") {
    spec.score = std::string(value);
    if (value.empty()) {
      return Invalid(text, "key 'score' has no value", "score=DIGEST",
                     "take what `kvforge score FILE` prints");
    }
  } else if (key == "sinks") {
    ASSIGN_OR_RETURN(
        spec.sinks,
        ParseChoice<bool>(text, part, value, {{"0", false}, {"1", true}}));
  } else if (key == "softcap") {
    ASSIGN_OR_RETURN(spec.softcap, ParseSoftcap(text, part, value));
  } else if (key == "sparse") {
    ASSIGN_OR_RETURN(spec.sparse_block, ParseNumber(text, part, value));
  } else if (key == "v") {
    ASSIGN_OR_RETURN(spec.v_format, FindFormat(value));
  } else {
    ASSIGN_OR_RETURN(spec.window, ParseNumber(text, part, value));
  }
  return absl::OkStatus();
}

absl::StatusOr<KernelKind> ParseKernel(absl::string_view text,
                                       absl::string_view name) {
  for (KernelKind kernel :
       {KernelKind::kStore, KernelKind::kDecode, KernelKind::kExtend,
        KernelKind::kMerge, KernelKind::kGather}) {
    if (KernelName(kernel) == name) return kernel;
  }
  return Invalid(text, absl::StrCat("kernel '", Shown(name), "' is unknown"),
                 "store, decode, extend, merge, gather",
                 "begin with one of these");
}

}  // namespace

absl::StatusOr<KernelSpec> ParseSpec(absl::string_view text) {
  // StrSplit gives no part at all for a null view.
  if (text.data() == nullptr) text = "";
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  for (absl::string_view part : parts) {
    if (part.empty()) {
      return Invalid(text, "a part is empty",
                     absl::StrCat(kAttentionForm, " and ", kMergeForm),
                     "remove the extra '/' or fill the part");
    }
  }
  KernelSpec spec;
  ASSIGN_OR_RETURN(spec.kernel, ParseKernel(text, parts[0]));
  const bool merge = spec.kernel == KernelKind::kMerge;
  const size_t fixed_parts = merge ? 3 : 6;
  if (parts.size() < fixed_parts) {
    return Invalid(
        text, absl::StrCat("it has ", parts.size(), " parts of ", fixed_parts),
        merge ? kMergeForm : kAttentionForm, "add what is missing");
  }
  if (merge) {
    ASSIGN_OR_RETURN(spec.head_dim, ParsePrefixed(text, parts[1], "d"));
  } else {
    ASSIGN_OR_RETURN(spec.k_format, FindFormat(parts[1]));
    spec.v_format = spec.k_format;
    ASSIGN_OR_RETURN(spec.head_dim, ParsePrefixed(text, parts[2], "d"));
    ASSIGN_OR_RETURN(spec.group, ParsePrefixed(text, parts[3], "g"));
    ASSIGN_OR_RETURN(spec.page_size, ParsePrefixed(text, parts[4], "page"));
  }
  ASSIGN_OR_RETURN(spec.type, ParseDType(parts[fixed_parts - 1]));
  spec.v_head_dim = spec.head_dim;
  spec.out = spec.type;

  std::vector<absl::string_view> seen;
  for (size_t i = fixed_parts; i < parts.size(); ++i) {
    RETURN_IF_ERROR(ParseKey(text, parts[i], seen, spec));
  }
  // One store or gather kernel serves every group.
  if (spec.kernel == KernelKind::kStore || spec.kernel == KernelKind::kGather) {
    if (spec.group < 1 || spec.group > kMaxGroup) {
      return Invalid(text, absl::StrCat("group ", spec.group),
                     absl::StrCat("1 to ", kMaxGroup), "write g1");
    }
    spec.group = 1;
  }
  RETURN_IF_ERROR(ValidateSpec(spec));
  return spec;
}

}  // namespace kvforge
