#include "examples/engine/layer_kernels.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace kvforge::example {
namespace {

KernelSpec SpecOf(KernelKind kernel, const ModelConfig& config, int layer,
                  const StepLimits& limits) {
  const PlannedLayer& planned = config.plan.layers[layer];
  const LayerGeometry& geometry = planned.layer.geometry;
  KernelSpec spec;
  spec.kernel = kernel;
  spec.k_format = planned.k_format;
  spec.v_format = planned.v_format;
  spec.head_dim = geometry.head_dim;
  spec.v_head_dim = geometry.v_head_dim;
  spec.page_size = limits.page_size;
  spec.type = spec.out = DType::kF32;
  if (kernel == KernelKind::kStore) return spec;
  spec.group = geometry.q_heads / geometry.kv_heads;
  spec.window = geometry.window;
  spec.softcap = geometry.softcap;
  if (config.kinds[layer] == LayerKind::kBlockSparse) {
    spec.sparse_block = config.block_tokens;
  }
  if (kernel == KernelKind::kDecode) spec.q_max = limits.decode_tokens;
  return spec;
}

constexpr KernelKind kKernels[] = {KernelKind::kStore, KernelKind::kExtend,
                                   KernelKind::kDecode};

}  // namespace

std::vector<KernelSpec> SpecsOf(const ModelConfig& config,
                                const StepLimits& limits) {
  std::vector<KernelSpec> specs;
  for (int layer = 0; layer < config.num_layers(); ++layer) {
    for (const KernelKind kernel : kKernels) {
      const KernelSpec spec = SpecOf(kernel, config, layer, limits);
      if (std::find(specs.begin(), specs.end(), spec) == specs.end()) {
        specs.push_back(spec);
      }
    }
  }
  return specs;
}

absl::Status CheckServed(const Engine& engine, const ModelConfig& config,
                         const StepLimits& limits) {
  for (int layer = 0; layer < config.num_layers(); ++layer) {
    for (const KernelKind kernel : kKernels) {
      const absl::Status served =
          engine.CheckServed(SpecOf(kernel, config, layer, limits));
      if (served.ok()) continue;
      return absl::Status(served.code(),
                          absl::StrCat("layer ", layer, ", KV cache of ",
                                       config.plan.layers[layer].k_format->name,
                                       ": ", served.message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LayerKernels>> PrepareLayers(
    Engine& engine, const ModelConfig& config, const StepLimits& limits) {
  RETURN_IF_ERROR(CheckServed(engine, config, limits));
  std::vector<LayerKernels> layers(config.num_layers());
  for (int layer = 0; layer < config.num_layers(); ++layer) {
    LayerKernels& kernels = layers[layer];
    for (auto [kind, kernel] : {std::pair{KernelKind::kStore, &kernels.store},
                                {KernelKind::kExtend, &kernels.extend},
                                {KernelKind::kDecode, &kernels.decode}}) {
      ASSIGN_OR_RETURN(*kernel,
                       engine.Prepare(SpecOf(kind, config, layer, limits)));
    }
    DecodeSizes sizes;
    sizes.batch = limits.sequences;
    sizes.num_kv_heads = config.geometry(layer).kv_heads;
    kernels.grid = ChooseDecodeGrid(engine, *kernels.decode, sizes);
    ASSIGN_OR_RETURN(
        kernels.workspace,
        TargetBuffer::Allocate(
            engine, DecodeWorkspaceBytes(*kernels.decode, kernels.grid)));
    RETURN_IF_ERROR(kernels.workspace.Fill(0));  // its counters start at 0
  }
  return layers;
}

}  // namespace kvforge::example
