// What the engine knows of a model, from its folder: what `kvforge prime
// --model` reads of its attention and its cache, and the sizes of the rest.
//
// A key of this example's own, "block_sparse": {"block_size": B, "every": n},
// makes every nth layer that has no window attend to some blocks of B tokens
// only (block_selection.h).
#ifndef KVFORGE_EXAMPLES_ENGINE_MODEL_CONFIG_H_
#define KVFORGE_EXAMPLES_ENGINE_MODEL_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/model_specs.h"

namespace kvforge::example {

enum class LayerKind { kFull, kWindow, kBlockSparse };
inline constexpr LayerKind kLayerKinds[] = {
    LayerKind::kFull, LayerKind::kWindow, LayerKind::kBlockSparse};
absl::string_view LayerKindName(LayerKind kind);

struct ModelConfig {
  ModelPlan plan;                // each layer's attention and cache format
  std::vector<LayerKind> kinds;  // of each layer
  int block_tokens = 0;          // of block-sparse layers
  int hidden_size = 0;
  int intermediate_size = 0;
  int vocab_size = 0;
  int max_tokens = 0;  // of a sequence
  float rope_theta = 0;
  float norm_epsilon = 0;

  const LayerGeometry& geometry(int layer) const {
    return plan.layers[layer].layer.geometry;
  }
  int num_layers() const { return static_cast<int>(plan.layers.size()); }
};

// `kv_cache_dtype` is a format's name, or "auto": what the folder says.
// Errors  those of PlanModel: a dtype or a scheme that does not exist or is not
//         served is named; kUnimplemented for layers that this example has not
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder,
                                            const std::string& kv_cache_dtype,
                                            int page_size);

}  // namespace kvforge::example

#endif  // KVFORGE_EXAMPLES_ENGINE_MODEL_CONFIG_H_
