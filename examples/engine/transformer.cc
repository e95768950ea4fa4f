#include "examples/engine/transformer.h"

#include <cmath>
#include <utility>

#include "examples/engine/uniform.h"

namespace kvforge::example {
namespace {

// [rows, inputs] times [inputs, outputs].
Floats Multiply(const Floats& rows, const Floats& weights, int inputs) {
  const size_t num_rows = rows.size() / inputs;
  const size_t outputs = weights.size() / inputs;
  Floats result(num_rows * outputs);
  for (size_t row = 0; row < num_rows; ++row) {
    float* to = result.data() + row * outputs;
    for (int i = 0; i < inputs; ++i) {
      const float value = rows[row * inputs + i];
      const float* from = weights.data() + i * outputs;
      for (size_t o = 0; o < outputs; ++o) to[o] += value * from[o];
    }
  }
  return result;
}

// Every `width` values to a mean square of 1.
void Normalise(int width, float epsilon, Floats& values) {
  for (size_t start = 0; start < values.size(); start += width) {
    float sum = 0;
    for (int i = 0; i < width; ++i)
      sum += values[start + i] * values[start + i];
    const float factor = 1 / std::sqrt(sum / width + epsilon);
    for (int i = 0; i < width; ++i) values[start + i] *= factor;
  }
}

void Add(const Floats& values, Floats& to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += values[i];
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, uint64_t seed)
    : config_(config) {
  Uniform random(seed);
  const size_t hidden = config.hidden_size;
  const auto matrix = [&](size_t inputs, size_t outputs) {
    return random.Draw(inputs * outputs, 1.0f / inputs);
  };
  embedding_ = random.Draw(config.vocab_size * hidden, 1);
  head_ = matrix(hidden, config.vocab_size);
  for (int index = 0; index < config.num_layers(); ++index) {
    const LayerGeometry& geometry = config.geometry(index);
    Layer layer;
    layer.q = matrix(hidden, geometry.q_heads * geometry.head_dim);
    layer.k = matrix(hidden, geometry.kv_heads * geometry.head_dim);
    layer.v = matrix(hidden, geometry.kv_heads * geometry.v_head_dim);
    layer.out = matrix(geometry.q_heads * geometry.v_head_dim, hidden);
    layer.gate = matrix(hidden, config.intermediate_size);
    layer.up = matrix(hidden, config.intermediate_size);
    layer.down = matrix(config.intermediate_size, hidden);
    layers_.push_back(std::move(layer));
  }
}

Floats Transformer::Embed(absl::Span<const int> tokens) const {
  Floats rows;
  for (const int token : tokens) {
    const auto row = embedding_.begin() + token * config_.hidden_size;
    rows.insert(rows.end(), row, row + config_.hidden_size);
  }
  return rows;
}

// The two halves of a head are the coordinates of its planes.
void Transformer::Rope(absl::Span<const int> positions, int heads, int head_dim,
                       Floats& rows) const {
  const int planes = head_dim / 2;
  for (size_t row = 0; row < positions.size(); ++row) {
    for (int plane = 0; plane < planes; ++plane) {
      const double angle =
          positions[row] *
          std::pow(config_.rope_theta, -static_cast<double>(plane) / planes);
      const float c = static_cast<float>(std::cos(angle));
      const float s = static_cast<float>(std::sin(angle));
      for (int head = 0; head < heads; ++head) {
        float* x = rows.data() + (row * heads + head) * head_dim + plane;
        const float first = x[0], second = x[planes];
        x[0] = first * c - second * s;
        x[planes] = second * c + first * s;
      }
    }
  }
}

Projections Transformer::Project(int layer, absl::Span<const int> positions,
                                 const Floats& hidden) const {
  const LayerGeometry& geometry = config_.geometry(layer);
  const Layer& weights = layers_[layer];
  Floats rows = hidden;
  Normalise(config_.hidden_size, config_.norm_epsilon, rows);
  Projections to;
  to.q = Multiply(rows, weights.q, config_.hidden_size);
  to.k = Multiply(rows, weights.k, config_.hidden_size);
  to.v = Multiply(rows, weights.v, config_.hidden_size);
  for (auto [values, heads] :
       {std::pair{&to.q, geometry.q_heads}, {&to.k, geometry.kv_heads}}) {
    Normalise(geometry.head_dim, config_.norm_epsilon, *values);
    Rope(positions, heads, geometry.head_dim, *values);
  }
  return to;
}

void Transformer::Finish(int layer, const Floats& attention,
                         Floats& hidden) const {
  const LayerGeometry& geometry = config_.geometry(layer);
  const Layer& weights = layers_[layer];
  Add(Multiply(attention, weights.out, geometry.q_heads * geometry.v_head_dim),
      hidden);
  Floats rows = hidden;
  Normalise(config_.hidden_size, config_.norm_epsilon, rows);
  Floats gate = Multiply(rows, weights.gate, config_.hidden_size);
  const Floats up = Multiply(rows, weights.up, config_.hidden_size);
  for (size_t i = 0; i < gate.size(); ++i) {
    gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];  // SiLU
  }
  Add(Multiply(gate, weights.down, config_.intermediate_size), hidden);
}

Floats Transformer::Logits(absl::Span<const float> row) const {
  Floats values(row.begin(), row.end());
  Normalise(config_.hidden_size, config_.norm_epsilon, values);
  return Multiply(values, head_, config_.hidden_size);
}

}  // namespace kvforge::example
