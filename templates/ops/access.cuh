// Runs of bytes moved at a width that is known at launch: as wide as base and
// strides allow.
#ifndef KVFORGE_TEMPLATES_OPS_ACCESS_CUH_
#define KVFORGE_TEMPLATES_OPS_ACCESS_CUH_

#include "arch/select.cuh"

namespace kvforge::ops {

// kBytes (a multiple of 4, or 2) from global memory to words, with accesses of
// `width` bytes: 16, 8, 4 or 2. A width above kBytes is taken as kBytes.
template <int kBytes>
__device__ __forceinline__ void LoadBytes(const u8* from, int width,
                                          u32 (&words)[kBytes / 4]) {
  if constexpr (kBytes % 16 == 0) {
    if (width >= 16) {
#pragma unroll
      for (int i = 0; i < kBytes / 16; ++i) {
        const U32x4 value = arch::LoadGlobal<U32x4>(from + 16 * i);
#pragma unroll
        for (int j = 0; j < 4; ++j) words[4 * i + j] = value.v[j];
      }
      return;
    }
  }
  if constexpr (kBytes % 8 == 0) {
    if (width >= 8) {
#pragma unroll
      for (int i = 0; i < kBytes / 8; ++i) {
        const U32x2 value = arch::LoadGlobal<U32x2>(from + 8 * i);
        words[2 * i] = value.v[0];
        words[2 * i + 1] = value.v[1];
      }
      return;
    }
  }
  if (width >= 4) {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) {
      words[i] = arch::LoadGlobal<u32>(from + 4 * i);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kBytes / 4; ++i) {
    const u32 low = arch::LoadGlobal<u16>(from + 4 * i);
    const u32 high = arch::LoadGlobal<u16>(from + 4 * i + 2);
    words[i] = low | (high << 16);
  }
}

// Words to kBytes of global memory with accesses of `width` bytes: 16, 8 or 4.
template <int kBytes>
__device__ __forceinline__ void StoreBytes(u8* to, int width,
                                           const u32 (&words)[kBytes / 4]) {
  if constexpr (kBytes % 16 == 0) {
    if (width >= 16) {
#pragma unroll
      for (int i = 0; i < kBytes / 16; ++i) {
        U32x4 value;
#pragma unroll
        for (int j = 0; j < 4; ++j) value.v[j] = words[4 * i + j];
        arch::StoreGlobal(to + 16 * i, value);
      }
      return;
    }
  }
  if constexpr (kBytes % 8 == 0) {
    if (width >= 8) {
#pragma unroll
      for (int i = 0; i < kBytes / 8; ++i) {
        U32x2 value;
        value.v[0] = words[2 * i];
        value.v[1] = words[2 * i + 1];
        arch::StoreGlobal(to + 8 * i, value);
      }
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kBytes / 4; ++i) {
    arch::StoreGlobal(to + 4 * i, words[i]);
  }
}

// kBytes (1, 2, 4, 8, 16 or 32) of shared memory to words, in accesses as wide
// as kBytes allows; `address` is aligned to min(kBytes, 16).
template <int kBytes>
__device__ __forceinline__ void LoadSharedBytes(
    u32 address, u32 (&words)[(kBytes + 3) / 4]) {
  if constexpr (kBytes == 1) {
    words[0] = arch::LoadShared<u8>(address);
  } else if constexpr (kBytes == 2) {
    words[0] = arch::LoadShared<u16>(address);
  } else if constexpr (kBytes == 4) {
    words[0] = arch::LoadShared<u32>(address);
  } else if constexpr (kBytes == 8) {
    const U32x2 value = arch::LoadShared<U32x2>(address);
    words[0] = value.v[0];
    words[1] = value.v[1];
  } else {
    static_assert(kBytes % 16 == 0);
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const U32x4 value = arch::LoadShared<U32x4>(address + 16 * i);
#pragma unroll
      for (int j = 0; j < 4; ++j) words[4 * i + j] = value.v[j];
    }
  }
}

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_ACCESS_CUH_
