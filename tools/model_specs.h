// From a model's files to the SPECs that its layers need, and what to tell of
// them. Layers of one geometry and format share their kernels.
#ifndef KVFORGE_TOOLS_MODEL_SPECS_H_
#define KVFORGE_TOOLS_MODEL_SPECS_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/spec/kernel_spec.h"
#include "tools/cache_scales.h"
#include "tools/model_files.h"

namespace kvforge {

struct ModelOptions {
  std::string folder;
  // A format, or "auto": what the checkpoint says, else the type of the rows.
  std::string kv_cache_format = "auto";
  std::string type =
      "auto";          // of q and of the stored rows; auto: config.json's
  int page_size = 16;  // tokens
  std::vector<KernelKind> kernels = {KernelKind::kStore, KernelKind::kDecode,
                                     KernelKind::kExtend, KernelKind::kMerge,
                                     KernelKind::kGather};
};

struct PlannedLayer {
  ModelLayer layer;
  const KvFormat* k_format = nullptr;  // null without a cache
  const KvFormat* v_format = nullptr;
  // Only where the format has given scales: e4m3_tensor's argument and the
  // like. Missing: the checkpoint has none, and the scale is 1.
  LayerScales scales;
};

struct ModelPlan {
  ModelFiles model;
  CacheQuantization quantization;
  DType type = DType::kBf16;
  std::vector<PlannedLayer> layers;
  std::vector<std::string> notes;  // for people, the model's included
};

// What can be told without the model's files: that format and type exist.
absl::Status CheckModelOptions(const ModelOptions& options);

// Errors  those of ReadModelFiles, ReadCacheQuantization, ReadCacheScales
//         kInvalidArgument  a format or type that is unknown, or a scale whose
//                           shape no format has
//         kUnimplemented    a format or head_dim that is not served
absl::StatusOr<ModelPlan> PlanModel(const ModelOptions& options);

// Each SPEC once: layer by layer, kernels in the order of the options.
absl::StatusOr<std::vector<KernelSpec>> SpecsOf(const ModelPlan& plan,
                                                const ModelOptions& options);

// The model in a line, a table of its distinct layers, and the notes.
std::string PlanText(const ModelPlan& plan);
// The same with every layer and its scales.
nlohmann::json PlanJson(const ModelPlan& plan);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_MODEL_SPECS_H_
