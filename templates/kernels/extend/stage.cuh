// A stage of extend where each warp multiplies codes: kBlockN keys of K and V,
// in groups of 16.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_STAGE_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_STAGE_CUH_

#include "kernels/extend/shape.cuh"

namespace kvforge::kernels {

struct ExtendStage {
  using Shape = ExtendShape;
  static constexpr int kThreads = spec::kWarps * 32;
  static constexpr int kBytes =
      Shape::kGroups * (Shape::KGroup::kBytes + Shape::VGroup::kBytes);
  static constexpr int kSharedBytes =
      Shape::kQueryBytes + spec::kStages * kBytes;

  u32 address;

  // Groups of K, then those of V.
  __device__ __forceinline__ ops::GroupPlace Keys(int group) const {
    using Group = Shape::KGroup;
    return ops::PlaceAt<Group>(address + group * Group::kBytes);
  }
  __device__ __forceinline__ ops::GroupPlace Values(int group) const {
    using Group = Shape::VGroup;
    return ops::PlaceAt<Group>(address +
                               Shape::kGroups * Shape::KGroup::kBytes +
                               group * Group::kBytes);
  }
};

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_STAGE_CUH_
