#include "tools/model_specs.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"
#include "tools/columns.h"

namespace kvforge {
namespace {

constexpr absl::string_view kAuto = "auto";

absl::StatusOr<DType> ChooseType(const ModelOptions& options,
                                 const ModelFiles& model) {
  if (options.type != kAuto) return ParseDType(options.type);
  if (model.type) return *model.type;
  return absl::InvalidArgumentError(absl::StrCat(
      options.folder,
      "/config.json: key 'dtype' (or 'torch_dtype') is "
      "missing; expected bfloat16, float16 or float32; name the type of q with "
      "--dtype bf16"));
}

absl::StatusOr<const KvFormat*> UnquantizedFormat(DType type) {
  if (type != DType::kF32) return FindFormat(DTypeName(type));
  return absl::UnimplementedError(
      "a KV cache of f32 rows is not served; supported: bf16 and f16 rows, and "
      "every format of `kvforge formats`; choose one with --kv-cache-dtype");
}

// The format of one side: FP8's follows from how many scales there are.
absl::StatusOr<const KvFormat*> Fp8Format(
    const LayerGeometry& layer, int head_dim, int index,
    const std::string& strategy, const std::optional<CacheScale>& scale) {
  if (!scale) return FindFormat("e4m3_tensor");
  const size_t heads = static_cast<size_t>(layer.kv_heads);
  const size_t count = scale->values.size();
  struct Layout {
    absl::string_view strategy;
    absl::string_view format;
    size_t count;
  };
  const Layout layouts[] = {{"tensor", "e4m3_tensor", 1},
                            {"attn_head", "e4m3_head", heads},
                            {"channel", "e4m3_channel", heads * head_dim}};
  std::vector<std::string> expected;
  for (const Layout& layout : layouts) {
    if (!strategy.empty() && strategy != layout.strategy) continue;
    if (count == layout.count) return FindFormat(layout.format);
    expected.push_back(absl::StrCat(layout.count, " (", layout.format, ")"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      scale->file, ": tensor '", scale->tensor, "' of layer ", index, " has ",
      count, " values; expected ", absl::StrJoin(expected, ", "),
      "; calibrate the checkpoint again, or choose a format without given "
      "scales with --kv-cache-dtype"));
}

// Values that a format's given scale has.
size_t GivenCount(const KvFormat& format, const LayerGeometry& layer,
                  int head_dim) {
  switch (format.given_scale) {
    case GivenScale::kNone:
      return 0;
    case GivenScale::kTensor:
      return 1;
    case GivenScale::kHead:
      return static_cast<size_t>(layer.kv_heads);
    case GivenScale::kChannel:
      return static_cast<size_t>(layer.kv_heads) * head_dim;
  }
  return 0;
}

// A checkpoint's scale as the argument of a format: as it is, or repeated where
// the format varies over more. nullopt where the counts do not go together.
std::optional<CacheScale> FitScale(const KvFormat& format,
                                   const LayerGeometry& layer, int head_dim,
                                   const std::optional<CacheScale>& scale) {
  if (!scale) return std::nullopt;
  const size_t count = GivenCount(format, layer, head_dim);
  if (count == scale->values.size()) return scale;
  if (scale->values.size() != 1 || count == 0) return std::nullopt;
  CacheScale repeated = *scale;
  repeated.values.assign(count, scale->values[0]);
  return repeated;
}

std::string LayerRanges(const std::vector<int>& indices) {
  std::vector<std::string> ranges;
  for (size_t begin = 0; begin < indices.size();) {
    size_t end = begin + 1;
    while (end < indices.size() && indices[end] == indices[end - 1] + 1) ++end;
    ranges.push_back(end - begin == 1
                         ? absl::StrCat(indices[begin])
                         : absl::StrCat(indices[begin], "-", indices[end - 1]));
    begin = end;
  }
  constexpr size_t kMostShown = 8;
  const size_t hidden =
      ranges.size() > kMostShown ? ranges.size() - kMostShown : 0;
  ranges.resize(ranges.size() - hidden);
  return absl::StrCat(absl::StrJoin(ranges, ","), hidden ? ",..." : "");
}

std::string ScaleText(const PlannedLayer& layer) {
  if (layer.k_format->given_scale == GivenScale::kNone) return "-";
  if (!layer.scales.k) return "none: 1";
  return layer.scales.k->tensor.substr(layer.scales.k->tensor.rfind('.') + 1);
}

std::string FormatText(const PlannedLayer& layer) {
  if (layer.k_format == layer.v_format)
    return std::string(layer.k_format->name);
  return absl::StrCat(layer.k_format->name, "/", layer.v_format->name);
}

nlohmann::json ScaleJson(const KvFormat& format,
                         const std::optional<CacheScale>& scale) {
  if (format.given_scale == GivenScale::kNone) return nullptr;
  if (!scale) return {{"tensor", nullptr}, {"values", {1.0}}};
  return {{"tensor", scale->tensor},
          {"file", scale->file},
          {"values", scale->values}};
}

absl::Status PlanScales(ModelPlan& plan,
                        const std::map<int, LayerScales>& scales,
                        const KvFormat* forced) {
  int missing = 0;
  int unused = 0;
  for (PlannedLayer& planned : plan.layers) {
    if (!planned.layer.has_cache) continue;
    const LayerGeometry& geometry = planned.layer.geometry;
    const auto found = scales.find(planned.layer.index);
    const LayerScales none;
    const LayerScales& given = found == scales.end() ? none : found->second;
    planned.k_format = planned.v_format = forced;
    if (forced == nullptr && plan.quantization.scheme == CacheScheme::kFp8) {
      const std::string& strategy = plan.quantization.strategy;
      ASSIGN_OR_RETURN(planned.k_format,
                       Fp8Format(geometry, geometry.head_dim,
                                 planned.layer.index, strategy, given.k));
      ASSIGN_OR_RETURN(planned.v_format,
                       Fp8Format(geometry, geometry.v_head_dim,
                                 planned.layer.index, strategy, given.v));
    } else if (forced == nullptr) {
      ASSIGN_OR_RETURN(planned.k_format,
                       plan.quantization.scheme == CacheScheme::kNvfp4
                           ? FindFormat("nvfp4")
                           : UnquantizedFormat(plan.type));
      planned.v_format = planned.k_format;
    }
    planned.scales.k =
        FitScale(*planned.k_format, geometry, geometry.head_dim, given.k);
    planned.scales.v =
        FitScale(*planned.v_format, geometry, geometry.v_head_dim, given.v);
    const bool takes = planned.k_format->given_scale != GivenScale::kNone;
    if (takes && !planned.scales.k) ++missing;
    if (given.k && !planned.scales.k) ++unused;
  }
  if (missing > 0) {
    plan.notes.push_back(
        absl::StrCat(missing,
                     " layers have no scales that fit their format: "
                     "1 is what the engine has to give"));
  }
  if (unused > 0) {
    plan.notes.push_back(absl::StrCat(
        "scales of ", unused, " layers are not used: ",
        forced != nullptr ? "the chosen format has none of their shape"
                          : "no file says that the KV cache is quantized; "
                            "--kv-cache-dtype e4m3_tensor takes them"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckModelOptions(const ModelOptions& options) {
  if (options.kv_cache_format != kAuto) {
    RETURN_IF_ERROR(FindFormat(options.kv_cache_format).status());
  }
  return options.type == kAuto ? absl::OkStatus()
                               : ParseDType(options.type).status();
}

absl::StatusOr<ModelPlan> PlanModel(const ModelOptions& options) {
  ModelPlan plan;
  ASSIGN_OR_RETURN(plan.model, ReadModelFiles(options.folder));
  plan.notes = plan.model.notes;
  ASSIGN_OR_RETURN(plan.type, ChooseType(options, plan.model));
  const KvFormat* forced = nullptr;
  if (options.kv_cache_format != kAuto) {
    ASSIGN_OR_RETURN(forced, FindFormat(options.kv_cache_format));
    plan.quantization.source =
        absl::StrCat("--kv-cache-dtype ", options.kv_cache_format);
  } else {
    ASSIGN_OR_RETURN(plan.quantization, ReadCacheQuantization(options.folder));
  }
  std::map<int, LayerScales> scales;
  // A chosen format without given scales asks nothing of the checkpoint.
  if (forced == nullptr || forced->given_scale != GivenScale::kNone) {
    ASSIGN_OR_RETURN(scales, ReadCacheScales(options.folder));
  }
  for (const ModelLayer& layer : plan.model.layers) {
    plan.layers.push_back({layer, nullptr, nullptr, {}});
  }
  RETURN_IF_ERROR(PlanScales(plan, scales, forced));
  const int num_layers = static_cast<int>(plan.layers.size());
  if (!scales.empty() && scales.rbegin()->first >= num_layers) {
    plan.notes.push_back(absl::StrCat(
        "the checkpoint has scales of layer ", scales.rbegin()->first,
        ", the model has ", num_layers, " layers: they are not used"));
  }
  return plan;
}

absl::StatusOr<std::vector<KernelSpec>> SpecsOf(const ModelPlan& plan,
                                                const ModelOptions& options) {
  std::vector<KernelSpec> specs;
  std::set<std::string> seen;
  for (const PlannedLayer& planned : plan.layers) {
    if (!planned.layer.has_cache) continue;
    const LayerGeometry& layer = planned.layer.geometry;
    for (const KernelKind kernel : options.kernels) {
      KernelSpec spec;
      spec.kernel = kernel;
      spec.type = spec.out = plan.type;
      if (kernel == KernelKind::kMerge) {
        spec.head_dim = spec.v_head_dim = layer.v_head_dim;
      } else {
        spec.head_dim = layer.head_dim;
        spec.v_head_dim = layer.v_head_dim;
        spec.k_format = planned.k_format;
        spec.v_format = planned.v_format;
        spec.page_size = options.page_size;
      }
      if (kernel == KernelKind::kDecode || kernel == KernelKind::kExtend) {
        spec.group = layer.q_heads / layer.kv_heads;
        spec.window = layer.window;
        spec.softcap = layer.softcap;
        spec.sinks = layer.sinks;
      }
      if (const absl::Status valid = ValidateSpec(spec); !valid.ok()) {
        return absl::Status(
            valid.code(), absl::StrCat("layer ", planned.layer.index, " of ",
                                       options.folder, ": ", valid.message()));
      }
      if (seen.insert(spec.Text()).second) specs.push_back(spec);
    }
  }
  return specs;
}

std::string PlanText(const ModelPlan& plan) {
  std::string text = absl::StrCat(
      "model ", plan.model.family, ": ", plan.layers.size(), " layers, ",
      DTypeName(plan.type), "; KV cache: ",
      plan.quantization.source.empty() ? "no scheme in the model's files"
                                       : plan.quantization.source,
      "\n");
  std::vector<std::vector<std::string>> rows = {
      {"layers", "heads", "kv_heads", "head_dim", "window", "softcap", "sinks",
       "format", "scales"}};
  std::vector<std::pair<std::vector<std::string>, std::vector<int>>> kinds;
  for (const PlannedLayer& planned : plan.layers) {
    const LayerGeometry& layer = planned.layer.geometry;
    std::vector<std::string> row(8, "-");
    if (planned.layer.has_cache) {
      row = {absl::StrCat(layer.q_heads),
             absl::StrCat(layer.kv_heads),
             layer.head_dim == layer.v_head_dim
                 ? absl::StrCat(layer.head_dim)
                 : absl::StrCat(layer.head_dim, "/", layer.v_head_dim),
             layer.window == 0 ? "-" : absl::StrCat(layer.window),
             layer.softcap == 0 ? "-" : absl::StrCat(layer.softcap),
             layer.sinks ? "yes" : "-",
             FormatText(planned),
             ScaleText(planned)};
    } else {
      row[6] = "no KV cache";
    }
    const auto same =
        std::find_if(kinds.begin(), kinds.end(),
                     [&row](const auto& kind) { return kind.first == row; });
    if (same == kinds.end()) {
      kinds.push_back({std::move(row), {planned.layer.index}});
    } else {
      same->second.push_back(planned.layer.index);
    }
  }
  for (const auto& [row, indices] : kinds) {
    rows.push_back({LayerRanges(indices)});
    rows.back().insert(rows.back().end(), row.begin(), row.end());
  }
  absl::StrAppend(&text, Columns(rows));
  for (const std::string& note : plan.notes) {
    absl::StrAppend(&text, "note: ", note, "\n");
  }
  return text;
}

nlohmann::json PlanJson(const ModelPlan& plan) {
  nlohmann::json layers = nlohmann::json::array();
  for (const PlannedLayer& planned : plan.layers) {
    const LayerGeometry& layer = planned.layer.geometry;
    nlohmann::json item = {{"layer", planned.layer.index},
                           {"has_cache", planned.layer.has_cache}};
    if (planned.layer.has_cache) {
      item.update(
          {{"heads", layer.q_heads},
           {"kv_heads", layer.kv_heads},
           {"head_dim", layer.head_dim},
           {"v_head_dim", layer.v_head_dim},
           {"window", layer.window},
           {"softcap", layer.softcap},
           {"sinks", layer.sinks},
           {"k_format", std::string(planned.k_format->name)},
           {"v_format", std::string(planned.v_format->name)},
           {"k_scale", ScaleJson(*planned.k_format, planned.scales.k)},
           {"v_scale", ScaleJson(*planned.v_format, planned.scales.v)}});
    }
    layers.push_back(std::move(item));
  }
  return {{"folder", plan.model.folder},
          {"model_type", plan.model.family},
          {"dtype", std::string(DTypeName(plan.type))},
          {"kv_cache_scheme", plan.quantization.source},
          {"layers", layers},
          {"notes", plan.notes}};
}

}  // namespace kvforge
