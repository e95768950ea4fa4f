#include "tools/model_files.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "tools/config_object.h"

namespace kvforge {
namespace {

constexpr int kMostLayers = 4096;
constexpr int kMostHeads = 65536;
constexpr int kMostHeadDim = 65536;
constexpr int kMostWindow = 1 << 30;

// Which layers have the window of `sliding_window` where no layer_types say it.
enum class WindowRule {
  kNone,      // none
  kAll,       // all, where the key is there
  kFromFlag,  // those from max_window_layers on, where use_sliding_window
  kPattern,   // all but every `pattern`th
};

// What config.json leaves to the family. Source: the configuration classes of
// https://github.com/huggingface/transformers, src/transformers/models.
struct Family {
  absl::string_view name;  // model_type
  WindowRule window;
  int pattern;   // of kPattern
  bool sinks;    // attention has a learned logit a q head
  int head_dim;  // where the key is missing; 0 = hidden_size / heads
  int q_heads;   // likewise; 0 = the key must be there
  int kv_heads;  // likewise; 0 = as many as q heads
};

constexpr Family kFamilies[] = {
    {"cohere", WindowRule::kNone, 0, false, 0, 0, 0},
    {"cohere2", WindowRule::kPattern, 4, false, 0, 0, 0},
    {"exaone4", WindowRule::kPattern, 4, false, 0, 0, 0},
    {"gemma", WindowRule::kNone, 0, false, 256, 0, 0},
    {"gemma2", WindowRule::kPattern, 2, false, 256, 8, 4},
    {"gemma3_text", WindowRule::kPattern, 6, false, 256, 8, 4},
    {"gemma4_text", WindowRule::kPattern, 6, false, 256, 8, 4},
    {"glm4", WindowRule::kNone, 0, false, 128, 0, 0},
    {"glm4_moe", WindowRule::kNone, 0, false, 128, 0, 0},
    {"gpt_oss", WindowRule::kPattern, 2, true, 64, 64, 8},
    {"granite", WindowRule::kNone, 0, false, 0, 0, 0},
    {"granitemoe", WindowRule::kNone, 0, false, 0, 0, 0},
    {"llama", WindowRule::kNone, 0, false, 0, 0, 0},
    {"mistral", WindowRule::kAll, 0, false, 0, 0, 0},
    {"ministral", WindowRule::kAll, 0, false, 0, 0, 0},
    {"mixtral", WindowRule::kAll, 0, false, 0, 0, 0},
    {"nemotron", WindowRule::kNone, 0, false, 0, 0, 0},
    {"olmo", WindowRule::kNone, 0, false, 0, 0, 0},
    {"olmo2", WindowRule::kNone, 0, false, 0, 0, 0},
    {"olmo3", WindowRule::kPattern, 4, false, 0, 0, 0},
    {"phi3", WindowRule::kAll, 0, false, 0, 0, 0},
    {"phimoe", WindowRule::kAll, 0, false, 0, 0, 0},
    {"qwen2", WindowRule::kFromFlag, 0, false, 0, 0, 0},
    {"qwen2_moe", WindowRule::kFromFlag, 0, false, 0, 0, 0},
    {"qwen2_vl_text", WindowRule::kFromFlag, 0, false, 0, 0, 0},
    {"qwen2_5_vl_text", WindowRule::kFromFlag, 0, false, 0, 0, 0},
    {"qwen3", WindowRule::kFromFlag, 0, false, 128, 0, 0},
    {"qwen3_moe", WindowRule::kFromFlag, 0, false, 0, 0, 0},
    {"qwen3_next", WindowRule::kNone, 0, false, 256, 0, 0},
    {"qwen3_vl_text", WindowRule::kNone, 0, false, 128, 0, 0},
    {"smollm3", WindowRule::kFromFlag, 0, false, 0, 0, 0},
    {"starcoder2", WindowRule::kAll, 0, false, 0, 0, 0},
};
constexpr Family kUnknownFamily = {"", WindowRule::kFromFlag, 0, false, 0, 0,
                                   0};

// Keys whose presence says that attention is of a kind no kernel here has, or
// is described in a way that is not read.
struct RefusedKey {
  absl::string_view key;
  absl::string_view what;
};
constexpr RefusedKey kRefusedKeys[] = {
    {"kv_lora_rank", "multi-head latent attention (MLA)"},
    {"attention_chunk_size", "chunked attention"},
    {"attn_config", "attention in attn_config"},
    {"attn_layer_period", "layers of kinds in attn_layer_period"},
    {"block_types", "layers of kinds in block_types"},
    {"hybrid_layer_pattern", "layers of kinds in hybrid_layer_pattern"},
    {"hybrid_override_pattern", "layers of kinds in hybrid_override_pattern"},
    {"layers_block_type", "layers of kinds in layers_block_type"},
    {"rwkv_version", "a model without a KV cache"},
};
// Booleans, refused where true.
constexpr RefusedKey kRefusedFlags[] = {
    {"alibi", "ALiBi, whose slopes no key gives"},
    {"is_encoder_decoder", "an encoder beside the decoder"},
};

constexpr absl::string_view kNestedKeys[] = {"text_config", "llm_config",
                                             "language_config"};

// layer_types that have no KV cache.
constexpr absl::string_view kCachelessTypes[] = {"linear_attention", "mamba",
                                                 "conv", "recurrent"};

absl::Status Refused(const ConfigObject& config, absl::string_view key,
                     absl::string_view family, absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat(
      config.file(), ": key '", config.PathOf(key), "' of model_type '", family,
      "' asks for ", what,
      ", which is not served; supported: causal attention of q heads over kv "
      "heads, with a window, a softcap or sinks; write the SPECs of its layers "
      "in a manifest if some of them are of this kind"));
}

absl::Status CheckServed(const ConfigObject& config, absl::string_view family) {
  for (const RefusedKey& row : kRefusedKeys) {
    if (config.Has(row.key)) return Refused(config, row.key, family, row.what);
  }
  for (const RefusedKey& row : kRefusedFlags) {
    ASSIGN_OR_RETURN(const bool set, config.Bool(row.key, false));
    if (set) return Refused(config, row.key, family, row.what);
  }
  return absl::OkStatus();
}

enum class LayerKind { kFull, kWindow, kNoCache };

absl::StatusOr<std::vector<LayerKind>> NamedKinds(const ConfigObject& config,
                                                  absl::string_view family,
                                                  int num_layers) {
  constexpr absl::string_view kKey = "layer_types";
  ASSIGN_OR_RETURN(const std::vector<std::string> types, config.Texts(kKey));
  if (types.size() != static_cast<size_t>(num_layers)) {
    return absl::InvalidArgumentError(absl::StrCat(
        config.file(), ": key '", config.PathOf(kKey), "' has ", types.size(),
        " layers; expected num_hidden_layers = ", num_layers,
        "; correct the file"));
  }
  std::vector<LayerKind> kinds;
  for (const std::string& type : types) {
    if (type == "full_attention" || type == "attention") {
      kinds.push_back(LayerKind::kFull);
    } else if (type == "sliding_attention") {
      kinds.push_back(LayerKind::kWindow);
    } else {
      bool cacheless = false;
      for (const absl::string_view name : kCachelessTypes) {
        cacheless = cacheless || type == name;
      }
      if (!cacheless) {
        return Refused(config, kKey, family,
                       absl::StrCat("'", type, "' in layer ", kinds.size()));
      }
      kinds.push_back(LayerKind::kNoCache);
    }
  }
  return kinds;
}

// "LLLG", repeated over the layers: L has the window, G has not. A number n
// means all but every nth.
absl::StatusOr<std::string> PatternText(const ConfigObject& config,
                                        int family_pattern) {
  for (const absl::string_view key :
       {"sliding_window_pattern", "_sliding_window_pattern"}) {
    if (!config.Has(key)) continue;
    const absl::StatusOr<std::string> text = config.Text(key);
    if (text.ok()) {
      if (text->empty() || text->find_first_not_of("LG") != std::string::npos) {
        return config.Wrong(key, "a number, or a string of L and G");
      }
      return *text;
    }
    ASSIGN_OR_RETURN(const int period, config.Integer(key, 1, kMostLayers));
    return std::string(period - 1, 'L') + "G";
  }
  return std::string(family_pattern - 1, 'L') + "G";
}

absl::StatusOr<std::vector<LayerKind>> LayerKinds(const ConfigObject& config,
                                                  const Family& family,
                                                  absl::string_view name,
                                                  int num_layers) {
  if (config.Has("layer_types")) return NamedKinds(config, name, num_layers);
  std::vector<LayerKind> kinds(num_layers, LayerKind::kFull);
  if (!config.Has("sliding_window")) return kinds;
  const bool has_pattern = config.Has("sliding_window_pattern") ||
                           config.Has("_sliding_window_pattern");
  if (family.window == WindowRule::kPattern || has_pattern) {
    ASSIGN_OR_RETURN(const std::string pattern,
                     PatternText(config, std::max(family.pattern, 1)));
    for (int i = 0; i < num_layers; ++i) {
      if (pattern[i % pattern.size()] == 'L') kinds[i] = LayerKind::kWindow;
    }
    return kinds;
  }
  int first = num_layers;
  if (family.window == WindowRule::kAll) first = 0;
  if (family.window == WindowRule::kFromFlag) {
    ASSIGN_OR_RETURN(const bool use, config.Bool("use_sliding_window", false));
    if (use) {
      ASSIGN_OR_RETURN(first,
                       config.Integer("max_window_layers", 0, kMostLayers, 28));
    }
  }
  for (int i = first; i < num_layers; ++i) kinds[i] = LayerKind::kWindow;
  return kinds;
}

// Geometry of a layer without a window.
absl::StatusOr<LayerGeometry> ReadGeometry(const ConfigObject& config,
                                           const Family& family) {
  const auto given = [](int value) {
    return value == 0 ? std::optional<int>() : std::optional<int>(value);
  };
  LayerGeometry layer;
  ASSIGN_OR_RETURN(layer.q_heads,
                   config.Integer("num_attention_heads", 1, kMostHeads,
                                  given(family.q_heads)));
  ASSIGN_OR_RETURN(
      layer.kv_heads,
      config.Integer("num_key_value_heads", 1, kMostHeads,
                     family.kv_heads == 0 ? layer.q_heads : family.kv_heads));
  if (config.Has("head_dim") || family.head_dim != 0) {
    ASSIGN_OR_RETURN(layer.head_dim, config.Integer("head_dim", 1, kMostHeadDim,
                                                    given(family.head_dim)));
  } else {
    ASSIGN_OR_RETURN(const int hidden,
                     config.Integer("hidden_size", 1, kMostWindow));
    if (hidden % layer.q_heads != 0) {
      return config.Wrong("hidden_size",
                          absl::StrCat("a multiple of num_attention_heads = ",
                                       layer.q_heads, ", or a key head_dim"));
    }
    layer.head_dim = hidden / layer.q_heads;
  }
  ASSIGN_OR_RETURN(
      layer.v_head_dim,
      config.Integer("v_head_dim", 1, kMostHeadDim, layer.head_dim));
  ASSIGN_OR_RETURN(const double softcap,
                   config.Number("attn_logit_softcapping", 0));
  if (softcap < 0) {
    return config.Wrong("attn_logit_softcapping", "a positive number or null");
  }
  layer.softcap = static_cast<float>(softcap);
  layer.sinks = family.sinks;
  return layer;
}

absl::Status CheckGroup(const ConfigObject& config, const LayerGeometry& layer,
                        absl::string_view kv_key) {
  if (layer.q_heads % layer.kv_heads == 0) return absl::OkStatus();
  return config.Wrong(
      kv_key,
      absl::StrCat("a divisor of num_attention_heads = ", layer.q_heads));
}

// Full layers of gemma4 beside layers with a window may have another head_dim
// and other kv heads.
absl::StatusOr<LayerGeometry> FullGeometry(const ConfigObject& config,
                                           LayerGeometry layer) {
  if (config.Has("global_head_dim")) {
    ASSIGN_OR_RETURN(layer.head_dim,
                     config.Integer("global_head_dim", 1, kMostHeadDim));
    layer.v_head_dim = layer.head_dim;
  }
  ASSIGN_OR_RETURN(const bool shares_kv,
                   config.Bool("attention_k_eq_v", false));
  absl::string_view kv_key = "num_key_value_heads";
  if (shares_kv && config.Has("num_global_key_value_heads")) {
    kv_key = "num_global_key_value_heads";
    ASSIGN_OR_RETURN(layer.kv_heads, config.Integer(kv_key, 1, kMostHeads));
  }
  RETURN_IF_ERROR(CheckGroup(config, layer, kv_key));
  return layer;
}

// The type that `config` or, where it is silent, the file's outer object names.
absl::StatusOr<std::optional<DType>> ReadType(const ConfigObject& config,
                                              const ConfigObject& outer) {
  for (const ConfigObject* object : {&config, &outer}) {
    for (const absl::string_view key : {"dtype", "torch_dtype"}) {
      if (!object->Has(key)) continue;
      ASSIGN_OR_RETURN(const std::string name, object->Text(key));
      if (name == "bfloat16") return std::optional<DType>(DType::kBf16);
      if (name == "float16") return std::optional<DType>(DType::kF16);
      if (name == "float32") return std::optional<DType>(DType::kF32);
      return object->Wrong(key, "bfloat16, float16 or float32");
    }
  }
  return std::optional<DType>();
}

}  // namespace

absl::StatusOr<ModelFiles> ReadModelFiles(const std::string& folder) {
  ASSIGN_OR_RETURN(const ConfigObject outer,
                   ConfigObject::Open(absl::StrCat(folder, "/config.json")));
  ConfigObject config = outer;
  for (const absl::string_view key : kNestedKeys) {
    ASSIGN_OR_RETURN(const std::optional<ConfigObject> nested,
                     outer.Object(key));
    if (!nested) continue;
    config = *nested;
    break;
  }
  ModelFiles model;
  model.folder = folder;
  ASSIGN_OR_RETURN(const std::string outer_family, outer.Text("model_type"));
  ASSIGN_OR_RETURN(model.family, config.Text("model_type", outer_family));
  const Family* family = &kUnknownFamily;
  for (const Family& row : kFamilies) {
    if (row.name == model.family) family = &row;
  }
  if (family == &kUnknownFamily) {
    model.notes.push_back(absl::StrCat(
        "model_type '", model.family,
        "' is not known: its keys are read as Llama's are, and what it has "
        "beyond them is not seen"));
  }
  RETURN_IF_ERROR(CheckServed(config, model.family));
  ASSIGN_OR_RETURN(model.type, ReadType(config, outer));
  ASSIGN_OR_RETURN(const int num_layers,
                   config.Integer("num_hidden_layers", 1, kMostLayers));
  ASSIGN_OR_RETURN(const LayerGeometry base, ReadGeometry(config, *family));
  ASSIGN_OR_RETURN(const LayerGeometry full, FullGeometry(config, base));
  ASSIGN_OR_RETURN(const std::vector<LayerKind> kinds,
                   LayerKinds(config, *family, model.family, num_layers));
  for (int i = 0; i < num_layers; ++i) {
    ModelLayer layer = {i, kinds[i] != LayerKind::kNoCache, full};
    if (kinds[i] == LayerKind::kWindow) {
      layer.geometry = base;
      RETURN_IF_ERROR(CheckGroup(config, base, "num_key_value_heads"));
      ASSIGN_OR_RETURN(layer.geometry.window,
                       config.Integer("sliding_window", 1, kMostWindow));
    }
    model.layers.push_back(layer);
  }
  return model;
}

}  // namespace kvforge
