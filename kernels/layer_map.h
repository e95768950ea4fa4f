// Which layers of a model share a pool, and where each lies in it: a hybrid
// model keeps only some of its layers in a pool, and these lie densely. Codes
// and every scale sidecar of a layer are at the same index.
//
// Layers {1, 3} of a pool of 2: layer 1 is at 0, layer 3 at 1, and no other
// layer is in it.
#ifndef KVFORGE_KERNELS_LAYER_MAP_H_
#define KVFORGE_KERNELS_LAYER_MAP_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvforge {

class LayerMap {
 public:
  // `layers` in the order of the pool. kInvalidArgument for a layer that is
  // negative or named twice.
  static absl::StatusOr<LayerMap> Create(std::vector<int> layers);

  // The index of a layer in the pool. kInvalidArgument for a layer that is not
  // in it: its cache is another pool's.
  absl::StatusOr<int> IndexOf(int layer) const;

  // Layers of the pool.
  int size() const { return static_cast<int>(layers_.size()); }

 private:
  explicit LayerMap(std::vector<int> layers) : layers_(std::move(layers)) {}

  std::vector<int> layers_;
};

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_LAYER_MAP_H_
