// The kernels of each layer: what they are specialised over, whether they are
// served, and the prepared ones. Activations are f32; what the cache holds is
// the format's.
#ifndef KVFORGE_EXAMPLES_ENGINE_LAYER_KERNELS_H_
#define KVFORGE_EXAMPLES_ENGINE_LAYER_KERNELS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/engine/model_config.h"
#include "kernels/decode.h"
#include "kernels/target_memory.h"

namespace kvforge::example {

// What a step can hold.
struct StepLimits {
  int sequences = 0;
  int prefill_tokens = 0;  // of all sequences together
  int decode_tokens = 0;   // of each sequence: 1 and the drafts
  int page_size = 0;
};

struct LayerKernels {
  std::shared_ptr<const PreparedKernel> store;
  std::shared_ptr<const PreparedKernel> extend;  // prefill
  std::shared_ptr<const PreparedKernel> decode;  // of 1 token and of drafts
  DecodeGrid grid;
  TargetBuffer workspace;
};

// What PrepareLayers prepares, each once: for `kvforge prime`.
std::vector<KernelSpec> SpecsOf(const ModelConfig& config,
                                const StepLimits& limits);

// OK if the engine's GPU serves every kernel of every layer; else the first
// refusal, with its layer. Compiles nothing.
absl::Status CheckServed(const Engine& engine, const ModelConfig& config,
                         const StepLimits& limits);

// Compiles what no cache folder has. Layers of one kind share their kernels.
absl::StatusOr<std::vector<LayerKernels>> PrepareLayers(
    Engine& engine, const ModelConfig& config, const StepLimits& limits);

}  // namespace kvforge::example

#endif  // KVFORGE_EXAMPLES_ENGINE_LAYER_KERNELS_H_
