#include "tools/cache_scales.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"
#include "tools/config_object.h"
#include "tools/safetensors.h"

namespace kvforge {
namespace {

namespace fs = std::filesystem;

constexpr char kIndex[] = "model.safetensors.index.json";
constexpr int kMostBits = 64;
constexpr int kNvfp4Group = 16;  // values that share a block scale

absl::Status NotServed(absl::string_view source, absl::string_view asked) {
  return absl::UnimplementedError(absl::StrCat(
      source, " is ", asked,
      ", which no kernel serves; supported: FP8 (8-bit float) and NVFP4 "
      "(4-bit float in groups of 16) with static scales, or none; choose a "
      "format with --kv-cache-dtype, such as e4m3_row"));
}

absl::StatusOr<CacheQuantization> FromAlgorithm(const ConfigObject& config) {
  constexpr absl::string_view kKey = "kv_cache_quant_algo";
  CacheQuantization cache;
  if (!config.Has(kKey)) return cache;
  ASSIGN_OR_RETURN(const std::string name, config.Text(kKey));
  cache.source =
      absl::StrCat(config.file(), ": ", config.PathOf(kKey), " = ", name);
  const std::string upper = absl::AsciiStrToUpper(name);
  if (upper == "FP8") {
    cache.scheme = CacheScheme::kFp8;
  } else if (upper == "NVFP4") {
    cache.scheme = CacheScheme::kNvfp4;
  } else if (upper != "NONE" && !upper.empty()) {
    return NotServed(
        absl::StrCat(config.file(), ": key '", config.PathOf(kKey), "'"),
        absl::StrCat("'", name, "'"));
  }
  return cache;
}

// {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": false}
absl::StatusOr<CacheQuantization> FromScheme(const ConfigObject& scheme) {
  ASSIGN_OR_RETURN(const int bits, scheme.Integer("num_bits", 1, kMostBits));
  ASSIGN_OR_RETURN(const std::string type, scheme.Text("type"));
  ASSIGN_OR_RETURN(const bool dynamic, scheme.Bool("dynamic", false));
  ASSIGN_OR_RETURN(const int group,
                   scheme.Integer("group_size", 1, 65536, kNvfp4Group));
  CacheQuantization cache;
  ASSIGN_OR_RETURN(cache.strategy, scheme.Text("strategy", ""));
  cache.source = absl::StrCat(
      scheme.file(), ": ", absl::StripSuffix(scheme.PathOf(""), "."), " = ",
      bits, "-bit ", type, cache.strategy.empty() ? "" : " per ",
      cache.strategy);
  const bool fp8 = bits == 8 && type == "float";
  const bool nvfp4 = bits == 4 && type == "float" && group == kNvfp4Group;
  const bool fp8_strategy =
      cache.strategy.empty() || cache.strategy == "tensor" ||
      cache.strategy == "attn_head" || cache.strategy == "channel";
  if (dynamic || !(fp8 || nvfp4) || (fp8 && !fp8_strategy)) {
    return NotServed(
        absl::StrCat(scheme.file(), ": key '",
                     absl::StripSuffix(scheme.PathOf(""), "."), "'"),
        absl::StrCat(dynamic ? "dynamic " : "", bits, "-bit '", type, "'",
                     cache.strategy.empty() ? "" : " per ", cache.strategy));
  }
  cache.scheme = fp8 ? CacheScheme::kFp8 : CacheScheme::kNvfp4;
  // Blocks are what nvfp4 is; its given scale is the tensor's.
  if (nvfp4) cache.strategy = "tensor";
  return cache;
}

// "layers.N" and the parts around it, and which side the name's end says.
struct ScaleName {
  int layer = 0;
  bool k = false;
  bool v = false;
};

std::optional<ScaleName> ParseScaleName(absl::string_view name) {
  ScaleName scale;
  if (absl::EndsWith(name, ".k_scale") ||
      absl::EndsWith(name, ".k_proj.output_scale")) {
    scale.k = true;
  } else if (absl::EndsWith(name, ".v_scale") ||
             absl::EndsWith(name, ".v_proj.output_scale")) {
    scale.v = true;
  } else if (absl::EndsWith(name, ".kv_scale")) {
    scale.k = scale.v = true;
  } else {
    return std::nullopt;
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  bool has_layer = false;
  bool in_attention = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const absl::string_view other :
         {"vision", "visual", "audio", "encoder", "cross_att", "mtp"}) {
      if (absl::StrContains(parts[i], other)) return std::nullopt;
    }
    if (has_layer && absl::StrContains(parts[i], "att")) in_attention = true;
    if (!has_layer && parts[i] == "layers" && i + 1 < parts.size() &&
        !parts[i + 1].empty() && absl::ascii_isdigit(parts[i + 1][0]) &&
        absl::SimpleAtoi(parts[i + 1], &scale.layer)) {
      has_layer = true;
    }
  }
  if (!has_layer || !in_attention) return std::nullopt;
  return scale;
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

float FromF16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const float sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0)
    return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

absl::StatusOr<CacheScale> ReadScale(const std::string& file,
                                     const std::string& name,
                                     const Tensor& tensor) {
  const auto fault = [&](absl::string_view found, absl::string_view expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        file, ": tensor '", name, "' ", found, "; expected ", expected,
        "; calibrate the checkpoint again, or choose a format without given "
        "scales with --kv-cache-dtype"));
  };
  CacheScale scale = {name, file, {}};
  if (tensor.dtype == "F32") {
    scale.values = tensor.Values<float>();
  } else if (tensor.dtype == "BF16") {
    for (const uint16_t bits : tensor.Values<uint16_t>()) {
      scale.values.push_back(FromBits(uint32_t{bits} << 16));
    }
  } else if (tensor.dtype == "F16") {
    for (const uint16_t bits : tensor.Values<uint16_t>()) {
      scale.values.push_back(FromF16(bits));
    }
  } else {
    return fault(absl::StrCat("has dtype ", tensor.dtype), "F32, BF16 or F16");
  }
  if (scale.values.empty()) return fault("is empty", "one or more scales");
  for (const float value : scale.values) {
    if (!std::isfinite(value) || value <= 0) {
      return fault(absl::StrCat("has the value ", value),
                   "positive finite numbers");
    }
  }
  return scale;
}

absl::Status AddScales(const std::string& file,
                       std::map<int, LayerScales>& layers) {
  ASSIGN_OR_RETURN(const SafetensorsFile tensors,
                   SafetensorsFile::OpenSome(file, [](absl::string_view name) {
                     return ParseScaleName(name).has_value();
                   }));
  for (const auto& [name, tensor] : tensors.tensors()) {
    const ScaleName parsed = *ParseScaleName(name);
    ASSIGN_OR_RETURN(const CacheScale scale, ReadScale(file, name, tensor));
    LayerScales& layer = layers[parsed.layer];
    for (const auto& [named, side] :
         {std::pair(parsed.k, &layer.k), std::pair(parsed.v, &layer.v)}) {
      if (!named) continue;
      if (side->has_value()) {
        return absl::InvalidArgumentError(absl::StrCat(
            file, ": tensor '", name, "' and tensor '", (*side)->tensor,
            "' of ", (*side)->file, " are scales of the same side of layer ",
            parsed.layer, "; expected one; take one of them out"));
      }
      *side = scale;
    }
  }
  return absl::OkStatus();
}

// Files of the checkpoint that have scales, or may have some.
absl::StatusOr<std::set<std::string>> ScaleFiles(const std::string& folder) {
  std::set<std::string> files;
  const absl::StatusOr<ConfigObject> index =
      ConfigObject::Open(absl::StrCat(folder, "/", kIndex));
  if (!index.ok() && !absl::IsNotFound(index.status())) return index.status();
  if (index.ok()) {
    ASSIGN_OR_RETURN(const std::optional<ConfigObject> map,
                     index->Object("weight_map"));
    if (!map) return index->Wrong("weight_map", "an object");
    for (const std::string& name : map->Keys()) {
      if (!ParseScaleName(name)) continue;
      ASSIGN_OR_RETURN(const std::string file, map->Text(name));
      if (file.empty() || absl::StrContains(file, '/')) {
        return map->Wrong(name, "the name of a file in the same folder");
      }
      files.insert(absl::StrCat(folder, "/", file));
    }
    return files;
  }
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".safetensors") {
      files.insert(it->path().string());
    }
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("cannot list ", folder, ": ", error.message()));
  }
  return files;
}

}  // namespace

absl::StatusOr<CacheQuantization> ReadCacheQuantization(
    const std::string& folder) {
  std::vector<CacheQuantization> found;
  const absl::StatusOr<ConfigObject> beside =
      ConfigObject::Open(absl::StrCat(folder, "/hf_quant_config.json"));
  if (beside.ok()) {
    ASSIGN_OR_RETURN(const std::optional<ConfigObject> quantization,
                     beside->Object("quantization"));
    if (!quantization) return beside->Wrong("quantization", "an object");
    ASSIGN_OR_RETURN(CacheQuantization cache, FromAlgorithm(*quantization));
    found.push_back(std::move(cache));
  } else if (!absl::IsNotFound(beside.status())) {
    return beside.status();
  }
  ASSIGN_OR_RETURN(const ConfigObject config,
                   ConfigObject::Open(absl::StrCat(folder, "/config.json")));
  ASSIGN_OR_RETURN(const std::optional<ConfigObject> quantization,
                   config.Object("quantization_config"));
  if (quantization) {
    ASSIGN_OR_RETURN(CacheQuantization cache, FromAlgorithm(*quantization));
    found.push_back(std::move(cache));
    ASSIGN_OR_RETURN(const std::optional<ConfigObject> scheme,
                     quantization->Object("kv_cache_scheme"));
    if (scheme) {
      ASSIGN_OR_RETURN(CacheQuantization from_scheme, FromScheme(*scheme));
      found.push_back(std::move(from_scheme));
    }
  }
  CacheQuantization result;
  for (CacheQuantization& cache : found) {
    if (cache.source.empty()) continue;
    if (!result.source.empty() && result.scheme != cache.scheme) {
      return absl::InvalidArgumentError(absl::StrCat(
          result.source, ", but ", cache.source,
          "; expected one scheme; correct one of them, or choose a format with "
          "--kv-cache-dtype"));
    }
    // The later says more: a strategy.
    result = std::move(cache);
  }
  return result;
}

absl::StatusOr<std::map<int, LayerScales>> ReadCacheScales(
    const std::string& folder) {
  ASSIGN_OR_RETURN(const std::set<std::string> files, ScaleFiles(folder));
  std::map<int, LayerScales> layers;
  for (const std::string& file : files) {
    RETURN_IF_ERROR(AddScales(file, layers));
  }
  for (const auto& [index, layer] : layers) {
    if (layer.k.has_value() == layer.v.has_value()) continue;
    const CacheScale& only = layer.k ? *layer.k : *layer.v;
    return absl::InvalidArgumentError(
        absl::StrCat(only.file, ": layer ", index, " has tensor '", only.tensor,
                     "' and no scale of ", layer.k ? "V" : "K",
                     "; expected both; calibrate the checkpoint again"));
  }
  return layers;
}

}  // namespace kvforge
