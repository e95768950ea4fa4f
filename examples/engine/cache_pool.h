// The memory of one pool: the planes of all its layers' codes and scales, a
// buffer for each plane of each side, in it one layer behind the other.
#ifndef KVFORGE_EXAMPLES_ENGINE_CACHE_POOL_H_
#define KVFORGE_EXAMPLES_ENGINE_CACHE_POOL_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/engine/pool_plan.h"
#include "kernels/layer_map.h"
#include "kernels/target_memory.h"

namespace kvforge::example {

class CachePool {
 public:
  // `plan` is sized; the given scales of its layers come from `model`, and are
  // 1 where the checkpoint has none.
  static absl::StatusOr<CachePool> Create(const Engine& engine,
                                          const ModelPlan& model,
                                          const PoolPlan& plan);

  // kInvalidArgument for a layer of another pool.
  absl::StatusOr<CacheView> View(int layer, CacheSide side) const;

  int64_t num_slots() const {
    return int64_t{plan_.num_pages} * plan_.geometry.page_size;
  }

 private:
  CachePool(const PoolPlan& plan, LayerMap layers)
      : plan_(plan), layers_(std::move(layers)) {}

  PoolPlan plan_;
  LayerMap layers_;
  TargetBuffer planes_[2][3];  // [side][plane]; empty if the format has none
  std::vector<TargetBuffer>
      given_scales_[2];  // [side][index of the layer], f32
};

}  // namespace kvforge::example

#endif  // KVFORGE_EXAMPLES_ENGINE_CACHE_POOL_H_
