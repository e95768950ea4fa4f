// 16 and 32 bit element types of q, sources and outputs: how they are read and
// written, always by way of f32.
#ifndef KVFORGE_TEMPLATES_FORMATS_ELEMENT_CUH_
#define KVFORGE_TEMPLATES_FORMATS_ELEMENT_CUH_

#include "arch/select.cuh"

namespace kvforge::formats {

struct Bf16 {
  static constexpr int kBytes = 2;
  // Two neighbours, the first in the low half.
  static __device__ __forceinline__ void ToF32x2(const u32* words, float& lo,
                                                 float& hi) {
    lo = arch::Bf16ToF32(static_cast<u16>(words[0]));
    hi = arch::Bf16ToF32(static_cast<u16>(words[0] >> 16));
  }
  static __device__ __forceinline__ void FromF32x2(float lo, float hi,
                                                   u32* words) {
    words[0] = arch::PackBf16(lo, hi);
  }
};

struct F16 {
  static constexpr int kBytes = 2;
  static __device__ __forceinline__ void ToF32x2(const u32* words, float& lo,
                                                 float& hi) {
    lo = arch::F16ToF32(static_cast<u16>(words[0]));
    hi = arch::F16ToF32(static_cast<u16>(words[0] >> 16));
  }
  static __device__ __forceinline__ void FromF32x2(float lo, float hi,
                                                   u32* words) {
    words[0] = arch::PackF16(lo, hi);
  }
};

struct F32 {
  static constexpr int kBytes = 4;
  static __device__ __forceinline__ void ToF32x2(const u32* words, float& lo,
                                                 float& hi) {
    lo = arch::FromBits(words[0]);
    hi = arch::FromBits(words[1]);
  }
  static __device__ __forceinline__ void FromF32x2(float lo, float hi,
                                                   u32* words) {
    words[0] = arch::Bits(lo);
    words[1] = arch::Bits(hi);
  }
};

template <class A, class B>
inline constexpr bool kSameElement = false;
template <class A>
inline constexpr bool kSameElement<A, A> = true;

}  // namespace kvforge::formats

#endif  // KVFORGE_TEMPLATES_FORMATS_ELEMENT_CUH_
