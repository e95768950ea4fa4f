// What the attention of a model's layers looks like, from the config.json that
// its folder has in the spelling of Hugging Face's transformers.
//
// Multimodal models keep their language model's keys in a nested object, such
// as text_config. What a family leaves to its own defaults is a row of a table
// in model_files.cc; a model_type without a row is read as Llama is, and
// `notes` says so. What would need another kind of kernel, such as multi-head
// latent attention, is refused by name.
#ifndef KVFORGE_TOOLS_MODEL_FILES_H_
#define KVFORGE_TOOLS_MODEL_FILES_H_

#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/spec/kernel_spec.h"

namespace kvforge {

// What a layer's kernels are specialised over, its format aside.
struct LayerGeometry {
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;    // of q and K
  int v_head_dim = 0;  // of V
  int window = 0;      // a query sees its own and the keys before it; 0 = all
  float softcap = 0;   // of the scores; 0 = none
  bool sinks = false;  // one learned logit a q head

  auto operator<=>(const LayerGeometry&) const = default;
};

struct ModelLayer {
  int index = 0;
  bool has_cache = true;   // false: a layer without attention
  LayerGeometry geometry;  // only with a cache
};

struct ModelFiles {
  std::string folder;
  std::string family;  // model_type
  // Of q and of the rows that are stored; nullopt where no file says it.
  std::optional<DType> type;
  std::vector<ModelLayer> layers;  // in order
  std::vector<std::string> notes;  // for people
};

// Errors  kNotFound         there is no config.json
//         kInvalidArgument  a key is missing, of a wrong type or at odds with
//                           another; file, key and what was expected are named
//         kUnimplemented    a kind of attention that no kernel has
absl::StatusOr<ModelFiles> ReadModelFiles(const std::string& folder);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_MODEL_FILES_H_
