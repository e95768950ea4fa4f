// Arch functions of sm_80 and later, as inline PTX. See docs/architecture.md,
// "Arch functions". No CUDA header is needed.
//
// Operations on memory and on the warp are volatile: the compiler keeps their
// order, which the text relies on. Conversions and arithmetic are not.
#ifndef KVFORGE_TEMPLATES_ARCH_SM80_CUH_
#define KVFORGE_TEMPLATES_ARCH_SM80_CUH_

#include "arch/sm80_access.cuh"
#include "arch/types.cuh"

namespace kvforge::arch {

namespace internal {

// The block's dynamic shared memory. Nothing else declares any.
extern __shared__ __align__(1024) unsigned char shared_bytes[];

}  // namespace internal

// Bits.

__device__ __forceinline__ u32 Bits(float x) { return __float_as_uint(x); }
__device__ __forceinline__ float FromBits(u32 x) { return __uint_as_float(x); }

// prmt, default mode: nibble i of the selector names the byte of {b, a} (a is
// bytes 0 to 3) that becomes byte i; its bit 3 replicates that byte's sign.
__device__ __forceinline__ u32 BytePermute(u32 a, u32 b, u32 selector) {
  u32 d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
  return d;
}

// The bits of `a` where `mask` has a 1, of `b` elsewhere: one instruction, also
// where the compiler knows bits of `a` and would take two masks.
__device__ __forceinline__ u32 BitSelect(u32 mask, u32 a, u32 b) {
  u32 d;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(d) : "r"(mask), "r"(a), "r"(b));
  return d;
}

// Halves as registers' halves, which instructions of 16-bit operands name at no
// cost; a shift they would execute.
__device__ __forceinline__ u16 UpperHalf(u32 x) {
  u16 d;
  asm("{\n"
      ".reg .b16 lower;\n"
      "mov.b32 {lower, %0}, %1;\n"
      "}"
      : "=h"(d)
      : "r"(x));
  return d;
}
__device__ __forceinline__ u32 BothHalves(u16 x) {
  u32 d;
  asm("mov.b32 %0, {%1, %1};" : "=r"(d) : "h"(x));
  return d;
}

// Launch.

__device__ __forceinline__ int ThreadIndex() {
  return static_cast<int>(threadIdx.x);
}
__device__ __forceinline__ i64 BlockIndex() { return blockIdx.x; }
__device__ __forceinline__ i64 BlockCount() { return gridDim.x; }

// Order.

__device__ __forceinline__ void BlockSync() {
  asm volatile("bar.sync 0;" ::: "memory");
}
__device__ __forceinline__ void WarpSync() {
  asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
}

// The first kThreads threads of the block, whole warps; the others go on.
template <int kThreads>
__device__ __forceinline__ void PartSync() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// Barrier number 2 to 15 of the block: `threads` threads, whole warps, come to
// it in turn; those of NamedArrive go on at once.
__device__ __forceinline__ void NamedSync(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
// Whether `x` of one of them is true.
__device__ __forceinline__ bool NamedAny(int number, int threads, bool x) {
  u32 d;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.u32 p, %3, 0;\n"
      "bar.red.or.pred q, %1, %2, p;\n"
      "selp.u32 %0, 1, 0, q;\n"
      "}"
      : "=r"(d)
      : "r"(number), "r"(threads), "r"(static_cast<u32>(x))
      : "memory");
  return d != 0;
}
__device__ __forceinline__ void NamedArrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Barriers in shared memory, 8 bytes each, aligned: a phase ends when `count`
// arrivals have come. What a thread did before it arrived is visible to those
// that waited for the end of that phase.

// One thread, and a BlockSync before others use it.
__device__ __forceinline__ void MbarrierInit(u32 barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count)
               : "memory");
}
__device__ __forceinline__ void MbarrierArrive(u32 barrier) {
  asm volatile(
      "{\n"
      ".reg .b64 state;\n"
      "mbarrier.arrive.shared.b64 state, [%0];\n"
      "}" ::"r"(barrier)
      : "memory");
}
// Arrives when all asynchronous copies that this thread has started are done.
__device__ __forceinline__ void CpAsyncArrive(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier)
               : "memory");
}
// Waits for the end of the phase of that parity: phases count from 0.
__device__ __forceinline__ void MbarrierWait(u32 barrier, u32 parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT_%=:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra WAIT_%=;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
#else
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT_%=:\n"
      "mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra WAIT_%=;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
#endif
}

// Warp: all 32 lanes take part.

__device__ __forceinline__ u32 ShuffleXor(u32 x, int mask) {
  u32 d;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=r"(d)
               : "r"(x), "r"(mask));
  return d;
}
__device__ __forceinline__ i32 ShuffleXor(i32 x, int mask) {
  return static_cast<i32>(ShuffleXor(static_cast<u32>(x), mask));
}
__device__ __forceinline__ float ShuffleXor(float x, int mask) {
  return FromBits(ShuffleXor(Bits(x), mask));
}
__device__ __forceinline__ u32 ShuffleFrom(u32 x, int lane) {
  u32 d;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=r"(d)
               : "r"(x), "r"(lane));
  return d;
}
__device__ __forceinline__ i32 ShuffleFrom(i32 x, int lane) {
  return static_cast<i32>(ShuffleFrom(static_cast<u32>(x), lane));
}
__device__ __forceinline__ float ShuffleFrom(float x, int lane) {
  return FromBits(ShuffleFrom(Bits(x), lane));
}
__device__ __forceinline__ bool WarpAny(bool x) {
  u32 d;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "vote.sync.any.pred q, p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, q;\n"
      "}"
      : "=r"(d)
      : "r"(static_cast<u32>(x)));
  return d != 0;
}
__device__ __forceinline__ bool WarpAll(bool x) {
  u32 d;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "vote.sync.all.pred q, p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, q;\n"
      "}"
      : "=r"(d)
      : "r"(static_cast<u32>(x)));
  return d != 0;
}

// Global memory: 1, 2, 4, 8 or 16 bytes, naturally aligned.

template <class T>
__device__ __forceinline__ T LoadGlobal(const void* address) {
  internal::AccessWords<T, internal::WordsOf<T>> access;
  internal::Access<static_cast<int>(sizeof(T))>::LoadGlobal(access.words,
                                                            address);
  return access.value;
}
template <class T>
__device__ __forceinline__ void StoreGlobal(void* address, T value) {
  internal::AccessWords<T, internal::WordsOf<T>> access;
  access.value = value;
  internal::Access<static_cast<int>(sizeof(T))>::StoreGlobal(address,
                                                             access.words);
}

// Adds to a counter and returns what it was. What this thread and, by barriers
// before, its block wrote is visible to whoever sees the sum; after it, and a
// barrier, the block sees what those wrote whose sum it saw.
__device__ __forceinline__ u32 AddGlobal(void* address, u32 value) {
  u32 d;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(d)
               : "l"(address), "r"(value)
               : "memory");
  return d;
}

// Shared memory, by 32-bit address: likewise.

__device__ __forceinline__ u32 SharedBase() {
  u64 base;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(base) : "l"(internal::shared_bytes));
  return static_cast<u32>(base);
}
template <class T>
__device__ __forceinline__ T LoadShared(u32 address) {
  internal::AccessWords<T, internal::WordsOf<T>> access;
  internal::Access<static_cast<int>(sizeof(T))>::LoadShared(access.words,
                                                            address);
  return access.value;
}
template <class T>
__device__ __forceinline__ void StoreShared(u32 address, T value) {
  internal::AccessWords<T, internal::WordsOf<T>> access;
  access.value = value;
  internal::Access<static_cast<int>(sizeof(T))>::StoreShared(address,
                                                             access.words);
}

// Asynchronous copy, global to shared. Both addresses are aligned to kBytes,
// `global` even where it is not valid. Not valid: zeros, and nothing is read.

template <int kBytes>
__device__ __forceinline__ void CpAsync(u32 shared, const void* global,
                                        bool valid) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  const u32 source_bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared),
                 "l"(global), "r"(source_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared),
                 "l"(global), "n"(kBytes), "r"(source_bytes)
                 : "memory");
  }
}
// 16 bytes of a line whose rest is wanted soon. Without a hint to L2: with one,
// ptxas 13.0 emitted an instruction that sm_90 does not have.
__device__ __forceinline__ void CpAsyncLine(u32 shared, const void* global,
                                            bool valid) {
  const u32 source_bytes = valid ? 16 : 0;
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared),
      "l"(global), "r"(source_bytes)
      : "memory");
}
__device__ __forceinline__ void CpAsyncCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of this thread's latest groups are under way.
template <int kPending>
__device__ __forceinline__ void CpAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Matrix. With g = lane / 4 and t = lane % 4, pairs (lower half first):
//   a[0] row g, columns 2t and 2t+1; a[1] row g+8; a[2], a[3] columns + 8
//   b[0] column g, rows 2t and 2t+1; b[1] rows + 8
//   d[0], d[1] row g, columns 2t and 2t+1; d[2], d[3] row g+8

__device__ __forceinline__ void MmaF16(float (&d)[4], const u32 (&a)[4],
                                       const u32 (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void MmaBf16(float (&d)[4], const u32 (&a)[4],
                                        const u32 (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Four 8x8 matrices of 16-bit elements. Lane i gives the address of row i % 8
// of matrix i / 8, 16 bytes, aligned. r[m] is row lane / 4, pair lane % 4 of
// matrix m; of its transpose in LdMatrix4Trans.
__device__ __forceinline__ void LdMatrix4(u32 (&r)[4], u32 row_address) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(row_address)
      : "memory");
}
__device__ __forceinline__ void LdMatrix4Trans(u32 (&r)[4], u32 row_address) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(row_address)
      : "memory");
}
// Transposes one 8x8 matrix held as above.
__device__ __forceinline__ u32 MoveMatrix(u32 x) {
  u32 d;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
               : "=r"(d)
               : "r"(x));
  return d;
}

// Convert, to nearest even. A pair's first value is its lower half.

__device__ __forceinline__ u32 PackF16(float lo, float hi) {
  u32 d;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  return d;
}
__device__ __forceinline__ u32 PackBf16(float lo, float hi) {
  u32 d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  return d;
}
__device__ __forceinline__ float F16ToF32(u16 x) {
  float d;
  asm("cvt.f32.f16 %0, %1;" : "=f"(d) : "h"(x));
  return d;
}
__device__ __forceinline__ float Bf16ToF32(u16 x) {
  return FromBits(static_cast<u32>(x) << 16);
}
__device__ __forceinline__ u32 MulF16x2(u32 x, u32 y) {
  u32 d;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
  return d;
}
__device__ __forceinline__ u32 AddF16x2(u32 x, u32 y) {
  u32 d;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
  return d;
}

// f32.

__device__ __forceinline__ float Fma(float a, float b, float c) {
  float d;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
}
__device__ __forceinline__ float Max(float a, float b) {
  float d;
  asm("max.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}
__device__ __forceinline__ float MaxNan(float a, float b) {
  float d;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}
__device__ __forceinline__ float Min(float a, float b) {
  float d;
  asm("min.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}
__device__ __forceinline__ float Abs(float a) {
  float d;
  asm("abs.f32 %0, %1;" : "=f"(d) : "f"(a));
  return d;
}
__device__ __forceinline__ float RoundEven(float a) {
  float d;
  asm("cvt.rni.f32.f32 %0, %1;" : "=f"(d) : "f"(a));
  return d;
}
__device__ __forceinline__ float Floor(float a) {
  float d;
  asm("cvt.rmi.f32.f32 %0, %1;" : "=f"(d) : "f"(a));
  return d;
}
__device__ __forceinline__ float Ceil(float a) {
  float d;
  asm("cvt.rpi.f32.f32 %0, %1;" : "=f"(d) : "f"(a));
  return d;
}
__device__ __forceinline__ float Trunc(float a) {
  float d;
  asm("cvt.rzi.f32.f32 %0, %1;" : "=f"(d) : "f"(a));
  return d;
}
__device__ __forceinline__ float Sqrt(float a) {
  float d;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(d) : "f"(a));
  return d;
}
// Subnormal inputs and results count as zero in these two.
__device__ __forceinline__ float Exp2(float a) {
  float d;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(a));
  return d;
}
__device__ __forceinline__ float Log2(float a) {
  float d;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(a));
  return d;
}

}  // namespace kvforge::arch

#endif  // KVFORGE_TEMPLATES_ARCH_SM80_CUH_
