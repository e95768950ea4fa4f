// The parts of a transformer around its attention, in plain f32 on the CPU:
// embedding, RMSNorm, projections, RoPE, a gated MLP and the logits. Weights
// are drawn from a seed, the same on every machine.
//
// Each head of q and k is normalised as in Qwen3: |q| = |k| = sqrt(head_dim),
// so that scores q . k / sqrt(head_dim) have a variance of 1.
#ifndef KVFORGE_EXAMPLES_ENGINE_TRANSFORMER_H_
#define KVFORGE_EXAMPLES_ENGINE_TRANSFORMER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "examples/engine/model_config.h"

namespace kvforge::example {

using Floats = std::vector<float>;  // row major

// What attention takes, for the rows of one step.
struct Projections {
  Floats q;  // [rows, q_heads, head_dim]
  Floats k;  // [rows, kv_heads, head_dim]
  Floats v;  // [rows, kv_heads, v_head_dim]
};

class Transformer {
 public:
  Transformer(const ModelConfig& config, uint64_t seed);

  // Hidden states [rows, hidden_size] of tokens.
  Floats Embed(absl::Span<const int> tokens) const;

  // In front of a layer's attention; rows lie at `positions`.
  Projections Project(int layer, absl::Span<const int> positions,
                      const Floats& hidden) const;

  // Behind it: the output projection of `attention` [rows, q_heads, v_head_dim]
  // and the MLP, added to `hidden`.
  void Finish(int layer, const Floats& attention, Floats& hidden) const;

  // The logits [vocab_size] of one row of hidden states.
  Floats Logits(absl::Span<const float> row) const;

 private:
  struct Layer {
    Floats q, k, v, out;    // [inputs, outputs]
    Floats gate, up, down;  // of the MLP
  };

  void Rope(absl::Span<const int> positions, int heads, int head_dim,
            Floats& rows) const;

  const ModelConfig config_;
  std::vector<Layer> layers_;
  Floats embedding_;  // [vocab_size, hidden_size]
  Floats head_;       // [hidden_size, vocab_size]
};

}  // namespace kvforge::example

#endif  // KVFORGE_EXAMPLES_ENGINE_TRANSFORMER_H_
