#include "kernels/layer_map.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kvforge {

absl::StatusOr<LayerMap> LayerMap::Create(std::vector<int> layers) {
  for (auto it = layers.begin(); it != layers.end(); ++it) {
    if (*it < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer map: layer ", *it,
                       " is negative; layers count from 0; correct the list"));
    }
    if (std::find(layers.begin(), it, *it) != it) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layer map: layer ", *it,
          " is named twice; a layer lies in a pool once; take one out"));
    }
  }
  return LayerMap(std::move(layers));
}

absl::StatusOr<int> LayerMap::IndexOf(int layer) const {
  const auto found = std::find(layers_.begin(), layers_.end(), layer);
  if (found == layers_.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer map: layer ", layer, " is not in this pool; it holds layers ",
        absl::StrJoin(layers_, ", "), "; use the pool that holds the layer"));
  }
  return static_cast<int>(found - layers_.begin());
}

}  // namespace kvforge
