// Loads and stores of 1, 2, 4, 8 and 16 bytes as inline PTX, for arch/sm80.cuh.
#ifndef KVFORGE_TEMPLATES_ARCH_SM80_ACCESS_CUH_
#define KVFORGE_TEMPLATES_ARCH_SM80_ACCESS_CUH_

#include "arch/types.cuh"

namespace kvforge::arch::internal {

// T as the words that one access moves. T and Words have one size.
template <class T, class Words>
union AccessWords {
  T value;
  Words words;
};

template <int kBytes>
struct Access;

template <>
struct Access<1> {
  using Words = u16;  // a register holds 16 bits at least; the high ones are 0
  static __device__ __forceinline__ void LoadGlobal(Words& w, const void* p) {
    asm volatile("ld.global.u8 %0, [%1];" : "=h"(w) : "l"(p));
  }
  static __device__ __forceinline__ void StoreGlobal(void* p, Words w) {
    asm volatile("st.global.u8 [%0], %1;" ::"l"(p), "h"(w) : "memory");
  }
  static __device__ __forceinline__ void LoadShared(Words& w, u32 a) {
    asm volatile("ld.shared.u8 %0, [%1];" : "=h"(w) : "r"(a));
  }
  static __device__ __forceinline__ void StoreShared(u32 a, Words w) {
    asm volatile("st.shared.u8 [%0], %1;" ::"r"(a), "h"(w) : "memory");
  }
};

template <>
struct Access<2> {
  using Words = u16;
  static __device__ __forceinline__ void LoadGlobal(Words& w, const void* p) {
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(w) : "l"(p));
  }
  static __device__ __forceinline__ void StoreGlobal(void* p, Words w) {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "h"(w) : "memory");
  }
  static __device__ __forceinline__ void LoadShared(Words& w, u32 a) {
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(w) : "r"(a));
  }
  static __device__ __forceinline__ void StoreShared(u32 a, Words w) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(a), "h"(w) : "memory");
  }
};

template <>
struct Access<4> {
  using Words = u32;
  static __device__ __forceinline__ void LoadGlobal(Words& w, const void* p) {
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(w) : "l"(p));
  }
  static __device__ __forceinline__ void StoreGlobal(void* p, Words w) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(w) : "memory");
  }
  static __device__ __forceinline__ void LoadShared(Words& w, u32 a) {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(w) : "r"(a));
  }
  static __device__ __forceinline__ void StoreShared(u32 a, Words w) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(a), "r"(w) : "memory");
  }
};

template <>
struct Access<8> {
  using Words = U32x2;
  static __device__ __forceinline__ void LoadGlobal(Words& w, const void* p) {
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(w.v[0]), "=r"(w.v[1])
                 : "l"(p));
  }
  static __device__ __forceinline__ void StoreGlobal(void* p, const Words& w) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(w.v[0]),
                 "r"(w.v[1])
                 : "memory");
  }
  static __device__ __forceinline__ void LoadShared(Words& w, u32 a) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(w.v[0]), "=r"(w.v[1])
                 : "r"(a));
  }
  static __device__ __forceinline__ void StoreShared(u32 a, const Words& w) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(a), "r"(w.v[0]),
                 "r"(w.v[1])
                 : "memory");
  }
};

template <>
struct Access<16> {
  using Words = U32x4;
  static __device__ __forceinline__ void LoadGlobal(Words& w, const void* p) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.v[0]), "=r"(w.v[1]), "=r"(w.v[2]), "=r"(w.v[3])
                 : "l"(p));
  }
  static __device__ __forceinline__ void StoreGlobal(void* p, const Words& w) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p),
                 "r"(w.v[0]), "r"(w.v[1]), "r"(w.v[2]), "r"(w.v[3])
                 : "memory");
  }
  static __device__ __forceinline__ void LoadShared(Words& w, u32 a) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.v[0]), "=r"(w.v[1]), "=r"(w.v[2]), "=r"(w.v[3])
                 : "r"(a));
  }
  static __device__ __forceinline__ void StoreShared(u32 a, const Words& w) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(a),
                 "r"(w.v[0]), "r"(w.v[1]), "r"(w.v[2]), "r"(w.v[3])
                 : "memory");
  }
};

template <class T>
using WordsOf = typename Access<static_cast<int>(sizeof(T))>::Words;

}  // namespace kvforge::arch::internal

#endif  // KVFORGE_TEMPLATES_ARCH_SM80_ACCESS_CUH_
