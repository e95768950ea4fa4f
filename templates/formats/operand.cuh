// The 16-bit operand types of a dot, and the given scales that the generated
// maps read.
#ifndef KVFORGE_TEMPLATES_FORMATS_OPERAND_CUH_
#define KVFORGE_TEMPLATES_FORMATS_OPERAND_CUH_

#include "arch/select.cuh"
#include "formats/score_math.cuh"
#include "kernels/cache_view.h"

namespace kvforge::formats {

struct F16Operand {
  static constexpr float kMinNormal = 0x1p-14f;
  static __device__ __forceinline__ u32 Pack(float lo, float hi) {
    return arch::PackF16(lo, hi);
  }
  // One half of a pair.
  static __device__ __forceinline__ float ToF32(u16 half) {
    return arch::F16ToF32(half);
  }
  static __device__ __forceinline__ void Unpack(u32 pair, float& lo,
                                                float& hi) {
    lo = ToF32(static_cast<u16>(pair));
    hi = ToF32(static_cast<u16>(pair >> 16));
  }
  static __device__ __forceinline__ void Mma(float (&d)[4], const u32 (&a)[4],
                                             const u32 (&b)[2]) {
    arch::MmaF16(d, a, b);
  }
  // Product: arch::Wgmma of the columns.
  template <class Product, bool kByRow, class A, int kTiles>
  static __device__ __forceinline__ void GroupProduct(float (&d)[kTiles][4],
                                                      const A& a, u64 b,
                                                      bool keep) {
    Product::template F16<kByRow>(d, a, b, keep);
  }
};

struct Bf16Operand {
  static constexpr float kMinNormal = 0x1p-126f;
  static __device__ __forceinline__ u32 Pack(float lo, float hi) {
    return arch::PackBf16(lo, hi);
  }
  // One half of a pair.
  static __device__ __forceinline__ float ToF32(u16 half) {
    return arch::Bf16ToF32(half);
  }
  static __device__ __forceinline__ void Unpack(u32 pair, float& lo,
                                                float& hi) {
    lo = ToF32(static_cast<u16>(pair));
    hi = ToF32(static_cast<u16>(pair >> 16));
  }
  static __device__ __forceinline__ void Mma(float (&d)[4], const u32 (&a)[4],
                                             const u32 (&b)[2]) {
    arch::MmaBf16(d, a, b);
  }
  template <class Product, bool kByRow, class A, int kTiles>
  static __device__ __forceinline__ void GroupProduct(float (&d)[kTiles][4],
                                                      const A& a, u64 b,
                                                      bool keep) {
    Product::template Bf16<kByRow>(d, a, b, keep);
  }
};

// The given scale of a `_tensor` format: one f32 in device memory, or by value.
__device__ __forceinline__ float GivenScale(const CacheView& view) {
  return view.scale_ptr != nullptr ? arch::LoadGlobal<float>(view.scale_ptr)
                                   : view.scale;
}

// The given scale of a `_head` format: f32 [kv heads] in device memory.
__device__ __forceinline__ float GivenHeadScale(const CacheView& view,
                                                int kv_head) {
  return arch::LoadGlobal<float>(view.scale_ptr + kv_head);
}

// The given scales of the channels of one kv head: f32 [kv heads, kDim] in
// device memory.
template <int kDim>
__device__ __forceinline__ const float* GivenChannelScales(
    const CacheView& view, int kv_head) {
  return view.scale_ptr + static_cast<i64>(kv_head) * kDim;
}

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_OPERAND_CUH_
