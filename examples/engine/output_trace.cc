#include "examples/engine/output_trace.h"

#include <cmath>
#include <limits>

#include "compiler/formats/row_codec.h"
#include "examples/engine/uniform.h"

namespace kvforge::example {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

void OutputTrace::Record(int sequence, int layer, int position,
                         absl::Span<const float> out) {
  outputs_[{sequence, layer, position}].assign(out.begin(), out.end());
}

double OutputTrace::Difference(int sequence, int layer, int position,
                               absl::Span<const float> out) const {
  const auto found = outputs_.find({sequence, layer, position});
  if (found == outputs_.end()) return kInfinity;
  double difference = 0, recorded = 0;  // squared
  for (size_t i = 0; i < out.size(); ++i) {
    const double value = found->second[i];
    difference += (out[i] - value) * (out[i] - value);
    recorded += value * value;
  }
  if (difference == 0) return 0;
  const double relative = std::sqrt(difference / recorded);
  return std::isnan(relative) ? kInfinity : relative;
}

double StorageNoise(const KvFormat& format, int head_dim) {
  constexpr int kRows = 64;
  Uniform random(/*seed=*/1);
  double error = 0, value = 0;  // squared
  for (int i = 0; i < kRows; ++i) {
    // Sums of 12 uniform numbers are near enough to normal ones.
    std::vector<float> row(head_dim);
    for (float& x : row) {
      for (const float part : random.Draw(12, 1.0f / 12)) x += part;
    }
    const std::vector<double> stored =
        DequantizeRow(format, QuantizeRow(format, row, 1), 1);
    for (int j = 0; j < head_dim; ++j) {
      error += (stored[j] - row[j]) * (stored[j] - row[j]);
      value += double{row[j]} * row[j];
    }
  }
  return std::sqrt(error / value);
}

// V's noise reaches the output as it is: output and noise are sums with the
// same weights. K's changes scores of variance 1, and so the weights, by as
// much. A layer adds both to what its input brings along; twice the sum is
// above what any token of a few layers has.
double DifferenceBound(const PlannedLayer& layer) {
  // Of attention with bf16 operands and with f16 operands (docs/formats.md).
  constexpr double kKernelErrors = 4e-3 + 1e-3;
  const LayerGeometry& geometry = layer.layer.geometry;
  return kKernelErrors +
         2 * (StorageNoise(*layer.k_format, geometry.head_dim) +
              StorageNoise(*layer.v_format, geometry.v_head_dim));
}

}  // namespace kvforge::example
