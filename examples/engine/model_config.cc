#include "examples/engine/model_config.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "tools/config_object.h"

namespace kvforge::example {
namespace {

constexpr int kMostSize = 1 << 16;

absl::Status CheckLayers(const ModelConfig& config) {
  for (const PlannedLayer& layer : config.plan.layers) {
    const LayerGeometry& geometry = layer.layer.geometry;
    if (layer.layer.has_cache && !geometry.sinks &&
        geometry.head_dim % 2 == 0) {
      continue;
    }
    return absl::UnimplementedError(absl::StrCat(
        "layer ", layer.layer.index, " of ", config.plan.model.folder,
        !layer.layer.has_cache ? " has no KV cache"
        : geometry.sinks       ? " has sinks"
                               : " has an odd head_dim",
        "; this example runs attention layers without sinks, of an even "
        "head_dim; choose another --model"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view LayerKindName(LayerKind kind) {
  switch (kind) {
    case LayerKind::kFull:
      return "full";
    case LayerKind::kWindow:
      return "window";
    case LayerKind::kBlockSparse:
      return "block-sparse";
  }
  return "";
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder,
                                            const std::string& kv_cache_dtype,
                                            int page_size) {
  ModelConfig config;
  ASSIGN_OR_RETURN(config.plan, PlanModel({.folder = folder,
                                           .kv_cache_format = kv_cache_dtype,
                                           .page_size = page_size}));
  RETURN_IF_ERROR(CheckLayers(config));
  ASSIGN_OR_RETURN(const ConfigObject file,
                   ConfigObject::Open(absl::StrCat(folder, "/config.json")));
  ASSIGN_OR_RETURN(config.hidden_size,
                   file.Integer("hidden_size", 1, kMostSize));
  ASSIGN_OR_RETURN(config.intermediate_size,
                   file.Integer("intermediate_size", 1, kMostSize));
  ASSIGN_OR_RETURN(config.vocab_size, file.Integer("vocab_size", 2, 1 << 20));
  ASSIGN_OR_RETURN(config.max_tokens,
                   file.Integer("max_position_embeddings", 1, 1 << 20));
  ASSIGN_OR_RETURN(const double theta, file.Number("rope_theta", 10000));
  ASSIGN_OR_RETURN(const double epsilon, file.Number("rms_norm_eps", 1e-6));
  config.rope_theta = static_cast<float>(theta);
  config.norm_epsilon = static_cast<float>(epsilon);

  ASSIGN_OR_RETURN(const std::optional<ConfigObject> sparse,
                   file.Object("block_sparse"));
  int every = 0;
  if (sparse) {
    ASSIGN_OR_RETURN(config.block_tokens,
                     sparse->Integer("block_size", 1, kMostSize));
    ASSIGN_OR_RETURN(every, sparse->Integer("every", 1, kMostSize));
  }
  for (int layer = 0; layer < config.num_layers(); ++layer) {
    config.kinds.push_back(
        config.geometry(layer).window > 0       ? LayerKind::kWindow
        : every > 0 && (layer + 1) % every == 0 ? LayerKind::kBlockSparse
                                                : LayerKind::kFull);
  }
  return config;
}

}  // namespace kvforge::example
