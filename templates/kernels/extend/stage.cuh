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

  // Terms of keys 8 n + 2 t, + 1 and 8 (n + 1) + 2 t, + 1, n even.
  __device__ __forceinline__ void LoadKeyTerms(
      int n, int t, ops::RowTerms (&terms)[2][2]) const {
    ops::LoadRowTermsPair<KSide, spec::kHeadDim>(Keys(n / 2), 2 * t, terms[0]);
    ops::LoadRowTermsPair<KSide, spec::kHeadDim>(Keys(n / 2), 8 + 2 * t,
                                                 terms[1]);
  }
  __device__ __forceinline__ void LoadValueTerms(
      int n, int t, ops::RowTerms (&terms)[2][2]) const {
    ops::LoadRowTermsPair<VSide, spec::kValueDim>(Values(n / 2), 2 * t,
                                                  terms[0]);
    ops::LoadRowTermsPair<VSide, spec::kValueDim>(Values(n / 2), 8 + 2 * t,
                                                  terms[1]);
  }

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
