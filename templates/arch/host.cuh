// Arch functions of the host target: the twin of sm80.cuh, sm89.cuh,
// sm90.cuh, sm90a.cuh and sm100.cuh for Clang, one fiber a thread. Pure
// functions are inline; what needs other threads or the launch calls
// runtime/host (host_thread.h). No standard header is needed.
//
// Every access to shared memory is checked for bounds and alignment, every
// access to global memory for alignment; a wrong one ends the launch with an
// error.
#ifndef KVFORGE_TEMPLATES_ARCH_HOST_CUH_
#define KVFORGE_TEMPLATES_ARCH_HOST_CUH_

#define __device__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
// A kernel is emitted once, not inlined into its entry.
#define __global__ __attribute__((noinline))

#include "arch/host_convert.cuh"
#include "arch/host_thread.h"
#include "arch/types.cuh"
#include "arch/wgmma_matrix.cuh"
#include "kernels/tensor_map.h"

namespace kvforge::arch {

namespace internal {

__device__ __forceinline__ HostThread* Self() {
  return reinterpret_cast<HostThread*>(HostThreadAddress(
      reinterpret_cast<unsigned long>(__builtin_frame_address(0))));
}

template <class T>
__device__ __forceinline__ void CheckGlobal(HostAccess access,
                                            const void* address) {
  const unsigned long bits = reinterpret_cast<unsigned long>(address);
  if (__builtin_expect(bits % sizeof(T) != 0 || bits == 0, false)) {
    kvforge_host_bad_access(Self(), access, bits, sizeof(T));
  }
}

template <class T>
__device__ __forceinline__ unsigned char* SharedBytes(HostAccess access,
                                                      u32 address) {
  HostThread* const thread = Self();
  const u32 offset = address - kHostSharedBase;  // huge below the arena
  const u64 end = static_cast<u64>(offset) + sizeof(T);
  if (__builtin_expect(address % sizeof(T) != 0 || end > thread->shared_bytes,
                       false)) {
    kvforge_host_bad_access(thread, access, address, sizeof(T));
  }
  if (end > thread->shared_high_water) {
    thread->shared_high_water = static_cast<u32>(end);
  }
  kvforge_host_shared_access(thread, access, offset, sizeof(T));
  return thread->shared + offset;
}

__device__ __forceinline__ u32 Collective1(HostCollective op, u32 value,
                                           u32 argument) {
  u32 operands[2] = {value, argument};
  kvforge_host_collective(Self(), op, operands);
  return operands[0];
}

__device__ __forceinline__ void Mma(HostCollective op, float (&d)[4],
                                    const u32 (&a)[4], const u32 (&b)[2]) {
  u32 operands[10] = {Bits(d[0]), Bits(d[1]), Bits(d[2]), Bits(d[3]), a[0],
                      a[1],       a[2],       a[3],       b[0],       b[1]};
  kvforge_host_collective(Self(), op, operands);
  for (int i = 0; i < 4; ++i) d[i] = FromBits(operands[i]);
}

__device__ __forceinline__ void LdMatrix(HostCollective op, u32 (&r)[4],
                                         u32 row_address) {
  u32 operands[4] = {row_address, 0, 0, 0};
  kvforge_host_collective(Self(), op, operands);
  for (int i = 0; i < 4; ++i) r[i] = operands[i];
}

// Runs a kernel with a copy of its argument struct.
template <class Args>
void RunKernel(void (*kernel)(Args), const void* args) {
  kernel(*static_cast<const Args*>(args));
}

}  // namespace internal

// Launch.

__device__ __forceinline__ int ThreadIndex() {
  return internal::Self()->thread_index;
}
__device__ __forceinline__ i64 BlockIndex() {
  return internal::Self()->block_index;
}
__device__ __forceinline__ i64 BlockCount() {
  return internal::Self()->block_count;
}

// Order.

__device__ __forceinline__ void BlockSync() {
  kvforge_host_block_sync(internal::Self());
}
__device__ __forceinline__ void WarpSync() {
  kvforge_host_collective(internal::Self(), kWarpSync, nullptr);
}

template <int kThreads>
__device__ __forceinline__ void PartSync() {
  kvforge_host_part_sync(internal::Self(), kThreads);
}
__device__ __forceinline__ void NamedSync(int number, int threads) {
  kvforge_host_named_sync(internal::Self(), number, threads, true, false);
}
__device__ __forceinline__ bool NamedAny(int number, int threads, bool x) {
  return kvforge_host_named_sync(internal::Self(), number, threads, true, x);
}
__device__ __forceinline__ void NamedArrive(int number, int threads) {
  kvforge_host_named_sync(internal::Self(), number, threads, false, false);
}
__device__ __forceinline__ void MbarrierInit(u32 barrier, int count) {
  kvforge_host_mbarrier_init(internal::Self(), barrier, count);
}
__device__ __forceinline__ void MbarrierArrive(u32 barrier) {
  kvforge_host_mbarrier_arrive(internal::Self(), barrier, false);
}
__device__ __forceinline__ void CpAsyncArrive(u32 barrier) {
  kvforge_host_mbarrier_arrive(internal::Self(), barrier, true);
}
__device__ __forceinline__ void MbarrierWait(u32 barrier, u32 parity) {
  kvforge_host_mbarrier_wait(internal::Self(), barrier, parity);
}

// Warp.

__device__ __forceinline__ u32 ShuffleXor(u32 x, int mask) {
  return internal::Collective1(kShuffleXor, x, static_cast<u32>(mask));
}
__device__ __forceinline__ i32 ShuffleXor(i32 x, int mask) {
  return static_cast<i32>(ShuffleXor(static_cast<u32>(x), mask));
}
__device__ __forceinline__ float ShuffleXor(float x, int mask) {
  return FromBits(ShuffleXor(Bits(x), mask));
}
__device__ __forceinline__ u32 ShuffleFrom(u32 x, int lane) {
  return internal::Collective1(kShuffleFrom, x, static_cast<u32>(lane));
}
__device__ __forceinline__ i32 ShuffleFrom(i32 x, int lane) {
  return static_cast<i32>(ShuffleFrom(static_cast<u32>(x), lane));
}
__device__ __forceinline__ float ShuffleFrom(float x, int lane) {
  return FromBits(ShuffleFrom(Bits(x), lane));
}
__device__ __forceinline__ bool WarpAny(bool x) {
  return internal::Collective1(kWarpAny, x, 0) != 0;
}
__device__ __forceinline__ bool WarpAll(bool x) {
  return internal::Collective1(kWarpAll, x, 0) != 0;
}

// Memory.

template <class T>
__device__ __forceinline__ T LoadGlobal(const void* address) {
  internal::CheckGlobal<T>(kLoadGlobal, address);
  T value;
  __builtin_memcpy(&value, address, sizeof(T));
  return value;
}
template <class T>
__device__ __forceinline__ void StoreGlobal(void* address, T value) {
  internal::CheckGlobal<T>(kStoreGlobal, address);
  __builtin_memcpy(address, &value, sizeof(T));
}
__device__ __forceinline__ u32 AddGlobal(void* address, u32 value) {
  internal::CheckGlobal<u32>(kStoreGlobal, address);
  return __atomic_fetch_add(static_cast<u32*>(address), value,
                            __ATOMIC_ACQ_REL);
}
__device__ __forceinline__ u32 SharedBase() { return kHostSharedBase; }
template <class T>
__device__ __forceinline__ T LoadShared(u32 address) {
  T value;
  __builtin_memcpy(&value, internal::SharedBytes<T>(kLoadShared, address),
                   sizeof(T));
  return value;
}
template <class T>
__device__ __forceinline__ void StoreShared(u32 address, T value) {
  __builtin_memcpy(internal::SharedBytes<T>(kStoreShared, address), &value,
                   sizeof(T));
}

template <int kBytes>
__device__ __forceinline__ void CpAsync(u32 shared, const void* global,
                                        bool valid) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  kvforge_host_cp_async(internal::Self(), shared, global, kBytes, valid);
}
__device__ __forceinline__ void CpAsyncLine(u32 shared, const void* global,
                                            bool valid) {
  CpAsync<16>(shared, global, valid);
}
__device__ __forceinline__ void CpAsyncCommit() {
  kvforge_host_cp_async_commit(internal::Self());
}
template <int kPending>
__device__ __forceinline__ void CpAsyncWait() {
  static_assert(kPending >= 0);
  kvforge_host_cp_async_wait(internal::Self(), kPending);
}

__device__ __forceinline__ void PrefetchMap(const TensorMap&) {}
__device__ __forceinline__ void ExpectBytes(u32 barrier, u32 bytes) {
  kvforge_host_mbarrier_expect(internal::Self(), barrier, bytes);
}
__device__ __forceinline__ void TensorCopy(u32 shared, const TensorMap& map,
                                           const int (&at)[5], u32 barrier) {
  kvforge_host_tensor_copy(internal::Self(), shared,
                           reinterpret_cast<const HostTensorMap*>(&map), at,
                           barrier);
}

__device__ __forceinline__ void BulkCopy(u32 shared, const void* global,
                                         u32 bytes, u32 barrier) {
  kvforge_host_bulk_copy(internal::Self(), shared, global, bytes, barrier);
}
__device__ __forceinline__ void AsyncFence() {
  kvforge_host_async_fence(internal::Self());
}

// Matrix.

__device__ __forceinline__ void MmaF16(float (&d)[4], const u32 (&a)[4],
                                       const u32 (&b)[2]) {
  internal::Mma(kMmaF16, d, a, b);
}
__device__ __forceinline__ void MmaBf16(float (&d)[4], const u32 (&a)[4],
                                        const u32 (&b)[2]) {
  internal::Mma(kMmaBf16, d, a, b);
}
__device__ __forceinline__ void LdMatrix4(u32 (&r)[4], u32 row_address) {
  internal::LdMatrix(kLdMatrix4, r, row_address);
}
__device__ __forceinline__ void LdMatrix4Trans(u32 (&r)[4], u32 row_address) {
  internal::LdMatrix(kLdMatrix4Trans, r, row_address);
}
__device__ __forceinline__ u32 MoveMatrix(u32 x) {
  return internal::Collective1(kMoveMatrix, x, 0);
}

// Warpgroup products.

template <int kRegisters>
__device__ __forceinline__ void LowerRegisters() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
}
template <int kRegisters>
__device__ __forceinline__ void RaiseRegisters() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
}
__device__ __forceinline__ void WgmmaBegin() {
  kvforge_host_collective(internal::Self(), kWgmmaBegin, nullptr);
}
__device__ __forceinline__ void WgmmaCommit() {
  kvforge_host_collective(internal::Self(), kWgmmaCommit, nullptr);
}
template <int kPending, class... Accumulators>
__device__ __forceinline__ void WgmmaWait(Accumulators&...) {
  u32 pending = kPending;
  kvforge_host_collective(internal::Self(), kWgmmaWait, &pending);
}
template <int kN>
struct Wgmma {
  template <bool kByRow>
  static __device__ __forceinline__ void F16(float (&d)[kN / 8][4],
                                             const u32 (&a)[4], u64 b,
                                             bool keep) {
    Run({&d[0][0], a, 0, b, kN, kHostF16, kByRow, keep});
  }
  template <bool kByRow>
  static __device__ __forceinline__ void F16(float (&d)[kN / 8][4], u64 a,
                                             u64 b, bool keep) {
    Run({&d[0][0], nullptr, a, b, kN, kHostF16, kByRow, keep});
  }
  template <bool kByRow>
  static __device__ __forceinline__ void Bf16(float (&d)[kN / 8][4],
                                              const u32 (&a)[4], u64 b,
                                              bool keep) {
    Run({&d[0][0], a, 0, b, kN, kHostBf16, kByRow, keep});
  }
  template <bool kByRow>
  static __device__ __forceinline__ void Bf16(float (&d)[kN / 8][4], u64 a,
                                              u64 b, bool keep) {
    Run({&d[0][0], nullptr, a, b, kN, kHostBf16, kByRow, keep});
  }
  static __device__ __forceinline__ void E4m3(float (&d)[kN / 8][4],
                                              const u32 (&a)[4], u64 b,
                                              bool keep) {
    Run({&d[0][0], a, 0, b, kN, kHostE4m3, false, keep});
  }
  static __device__ __forceinline__ void E4m3(float (&d)[kN / 8][4], u64 a,
                                              u64 b, bool keep) {
    Run({&d[0][0], nullptr, a, b, kN, kHostE4m3, false, keep});
  }

 private:
  static __device__ __forceinline__ void Run(HostProduct product) {
    kvforge_host_collective(internal::Self(), kWgmma,
                            reinterpret_cast<u32*>(&product));
  }
};

// f32. A NaN result has the bits that the instruction gives.

__device__ __forceinline__ float Fma(float a, float b, float c) {
  const float d = __builtin_fmaf(a, b, c);
  return __builtin_isnan(d) ? FromBits(kNanBits) : d;
}
__device__ __forceinline__ float MaxNan(float a, float b) {
  if (__builtin_isunordered(a, b)) return FromBits(kNanBits);
  // Equal values differ in the sign of zero at most, and +0 is the larger.
  if (a == b) return FromBits(Bits(a) & Bits(b));
  return a > b ? a : b;
}
__device__ __forceinline__ float Max(float a, float b) {
  if (__builtin_isnan(a)) a = b;
  if (__builtin_isnan(b)) b = a;
  return MaxNan(a, b);
}
__device__ __forceinline__ float Min(float a, float b) {
  if (__builtin_isnan(a)) a = b;
  if (__builtin_isnan(b)) b = a;
  if (__builtin_isnan(a)) return FromBits(kNanBits);
  if (a == b) return FromBits(Bits(a) | Bits(b));
  return a < b ? a : b;
}
__device__ __forceinline__ float Abs(float a) {
  return FromBits(Bits(a) & 0x7fffffffu);
}
__device__ __forceinline__ float RoundEven(float a) {
  return __builtin_isnan(a) ? FromBits(kNanBits) : __builtin_roundevenf(a);
}
__device__ __forceinline__ float Floor(float a) {
  return __builtin_isnan(a) ? FromBits(kNanBits) : __builtin_floorf(a);
}
__device__ __forceinline__ float Ceil(float a) {
  return __builtin_isnan(a) ? FromBits(kNanBits) : __builtin_ceilf(a);
}
__device__ __forceinline__ float Trunc(float a) {
  return __builtin_isnan(a) ? FromBits(kNanBits) : __builtin_truncf(a);
}
__device__ __forceinline__ float Sqrt(float a) {
  const float d = __builtin_sqrtf(a);
  return __builtin_isnan(d) ? FromBits(kNanBits) : d;
}

namespace internal {

__device__ __forceinline__ float FlushSubnormal(float a) {
  return Abs(a) < 0x1p-126f ? FromBits(Bits(a) & 0x80000000u) : a;
}

}  // namespace internal

__device__ __forceinline__ float Exp2(float a) {
  const float d =
      internal::FlushSubnormal(__builtin_exp2f(internal::FlushSubnormal(a)));
  return __builtin_isnan(d) ? FromBits(kNanBits) : d;
}
__device__ __forceinline__ float Log2(float a) {
  const float d =
      internal::FlushSubnormal(__builtin_log2f(internal::FlushSubnormal(a)));
  return __builtin_isnan(d) ? FromBits(kNanBits) : d;
}

}  // namespace kvforge::arch

#endif  // KVFORGE_TEMPLATES_ARCH_HOST_CUH_
