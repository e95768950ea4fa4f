// What a model's folder says about quantizing its KV cache: the scheme in
// hf_quant_config.json or config.json, and the scales that were calibrated for
// it, which lie in the checkpoint beside the weights.
#ifndef KVFORGE_TOOLS_CACHE_SCALES_H_
#define KVFORGE_TOOLS_CACHE_SCALES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kvforge {

enum class CacheScheme { kNone, kFp8, kNvfp4 };

struct CacheQuantization {
  CacheScheme scheme = CacheScheme::kNone;
  // What the scales vary over: "tensor", "attn_head", "channel"; "" = unsaid.
  std::string strategy;
  std::string source;  // "DIR/config.json: quantization_config...."; "" = none
};

// From hf_quant_config.json (quantization.kv_cache_quant_algo) and config.json
// (quantization_config.kv_cache_quant_algo or .kv_cache_scheme).
// Errors  kInvalidArgument  of a wrong form, or the two files disagree
//         kUnimplemented    a scheme that no kernel serves
absl::StatusOr<CacheQuantization> ReadCacheQuantization(
    const std::string& folder);

struct CacheScale {
  std::string tensor;  // name in the checkpoint
  std::string file;    // that has it
  std::vector<float> values;
};

struct LayerScales {
  std::optional<CacheScale> k;
  std::optional<CacheScale> v;
};

// The scales of each layer that has any, from model.safetensors.index.json and
// the files that it names for them, else from the folder's *.safetensors; empty
// where there is no checkpoint. Names: ...layers.N....attn....k_scale and
// v_scale, ...k_proj.output_scale and v_proj.output_scale, and ...kv_scale for
// both; those of vision, audio and encoder towers are not the cache's.
// Errors  kInvalidArgument  damaged, a scale that is no positive finite number,
//                           two tensors for one side of a layer, or K's
//                           without V's
//         kNotFound         a file that the index names is not there
absl::StatusOr<std::map<int, LayerScales>> ReadCacheScales(
    const std::string& folder);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_CACHE_SCALES_H_
