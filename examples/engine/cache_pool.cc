#include "examples/engine/cache_pool.h"

#include <utility>

#include "runtime/base/status_macros.h"

namespace kvforge::example {
namespace {

constexpr CacheSide kSides[] = {CacheSide::kKey, CacheSide::kValue};
constexpr PlaneKind kPlanes[] = {PlaneKind::kCodes, PlaneKind::kRowScale,
                                 PlaneKind::kBlockScale};

// The scales that a format wants from the checkpoint.
std::vector<float> GivenScales(const KvFormat& format, int kv_heads,
                               int head_dim,
                               const std::optional<CacheScale>& scale) {
  if (scale) return scale->values;
  switch (format.given_scale) {
    case GivenScale::kNone:
      return {};
    case GivenScale::kTensor:
      return {1};
    case GivenScale::kHead:
      return std::vector<float>(kv_heads, 1);
    case GivenScale::kChannel:
      return std::vector<float>(size_t{1} * kv_heads * head_dim, 1);
  }
  return {};
}

}  // namespace

absl::StatusOr<CachePool> CachePool::Create(const Engine& engine,
                                            const ModelPlan& model,
                                            const PoolPlan& plan) {
  RETURN_IF_ERROR(CheckGeometry(plan.geometry));
  ASSIGN_OR_RETURN(LayerMap layers, LayerMap::Create(plan.layers));
  CachePool pool(plan, std::move(layers));
  for (const CacheSide side : kSides) {
    const bool key = side == CacheSide::kKey;
    for (const PlaneKind kind : kPlanes) {
      ASSIGN_OR_RETURN(
          pool.planes_[static_cast<int>(side)][static_cast<int>(kind)],
          TargetBuffer::Allocate(
              engine,
              PlaneBufferBytes(plan.geometry, side, kind, plan.num_pages) *
                  pool.layers_.size()));
    }
    for (const int layer : plan.layers) {
      const LayerScales& scales = model.layers[layer].scales;
      const std::vector<float> values =
          GivenScales(key ? *plan.geometry.k_format : *plan.geometry.v_format,
                      plan.geometry.num_kv_heads,
                      key ? plan.geometry.head_dim : plan.geometry.v_head_dim,
                      key ? scales.k : scales.v);
      ASSIGN_OR_RETURN(TargetBuffer buffer,
                       TargetBuffer::FromHost(engine, values.data(),
                                              values.size() * sizeof(float)));
      pool.given_scales_[static_cast<int>(side)].push_back(std::move(buffer));
    }
  }
  return pool;
}

absl::StatusOr<CacheView> CachePool::View(int layer, CacheSide side) const {
  ASSIGN_OR_RETURN(const int index, layers_.IndexOf(layer));
  unsigned char* bases[3] = {};
  for (const PlaneKind kind : kPlanes) {
    const TargetBuffer& buffer =
        planes_[static_cast<int>(side)][static_cast<int>(kind)];
    if (buffer.bytes() == 0) continue;
    bases[static_cast<int>(kind)] =
        buffer.as<unsigned char>() +
        index * PlaneBufferBytes(plan_.geometry, side, kind, plan_.num_pages);
  }
  CacheView view =
      MakeCacheView(plan_.geometry, side, bases[0], bases[1], bases[2]);
  const TargetBuffer& given = given_scales_[static_cast<int>(side)][index];
  if (given.bytes() > 0) view.scale_ptr = given.as<const float>();
  return view;
}

}  // namespace kvforge::example
