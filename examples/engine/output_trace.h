// Attention outputs of one run, for another run over the same tokens to be
// compared with.
#ifndef KVFORGE_EXAMPLES_ENGINE_OUTPUT_TRACE_H_
#define KVFORGE_EXAMPLES_ENGINE_OUTPUT_TRACE_H_

#include <map>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "compiler/formats/format.h"
#include "tools/model_specs.h"

namespace kvforge::example {

class OutputTrace {
 public:
  void Record(int sequence, int layer, int position,
              absl::Span<const float> out);

  // |out - recorded| / |recorded| of one token's output over all heads, in the
  // Euclidean norm. Infinite for NaN, and where nothing was recorded.
  double Difference(int sequence, int layer, int position,
                    absl::Span<const float> out) const;

 private:
  std::map<std::tuple<int, int, int>, std::vector<float>> outputs_;
};

// The root mean square error of normally distributed values stored in a format,
// as a part of their own, by the format's definition on the CPU. Given scales
// are 1.
double StorageNoise(const KvFormat& format, int head_dim);

// What Difference may be between a layer's cache of bf16 and one of these
// formats, at normalised q and k.
double DifferenceBound(const PlannedLayer& layer);

}  // namespace kvforge::example

#endif  // KVFORGE_EXAMPLES_ENGINE_OUTPUT_TRACE_H_
