// Arch functions of sm_90a alone: matrix products of a warpgroup, four warps
// whose first is a multiple of four, and registers that move between warps.
//
// A product runs on its own: it reads shared operands and adds to `d` some time
// between WgmmaBegin and the WgmmaWait that covers it. Until then nobody writes
// the operands or touches `d`. All threads of the warpgroup take part, at the
// same place of the text.
#ifndef KVFORGE_TEMPLATES_ARCH_SM90A_CUH_
#define KVFORGE_TEMPLATES_ARCH_SM90A_CUH_

#include "arch/types.cuh"
#include "arch/wgmma_matrix.cuh"

namespace kvforge::arch {

// The multiprocessor's registers are dealt out anew: every warp of a warpgroup
// keeps kRegisters a thread from here on. A multiple of 8; raising waits until
// others have given enough up.
template <int kRegisters>
__device__ __forceinline__ void LowerRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void RaiseRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// What was written to registers of operands and accumulators is seen by the
// products that follow.
__device__ __forceinline__ void WgmmaBegin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// The products since the last commit are a group.
__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

namespace internal {

// No use of d is moved ahead of this place.
template <int kTiles>
__device__ __forceinline__ void Settle(float (&d)[kTiles][4]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int c = 0; c < 4; ++c) asm volatile("" : "+f"(d[i][c])::"memory");
  }
}

}  // namespace internal

// Waits until at most kPending groups are under way. `d`: accumulators of the
// groups that are done then.
template <int kPending, class... Accumulators>
__device__ __forceinline__ void WgmmaWait(Accumulators&... d) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
  (internal::Settle(d), ...);
}

// d (+)= a b of 64 rows: d[i] holds columns 8 i + 2 t, + 1 of row g, then of
// row g + 8, of the warp's 16 rows, with g = lane / 4 and t = lane % 4. `a`:
// those rows of 16 columns as registers of an mma.sync operand, or a shared
// matrix by depth. `b`: a shared matrix of kN rows by depth, or by row
// (kByRow). Without `keep` d is not read.
//
// E4m3: 32 columns of a, both operands by depth. Registers of `a` hold four
// codes: of columns 4 t .. + 3 of row g, of row g + 8, then of columns 16 on.
// The sum keeps some 14 bits: each term is cut off below 2^-13 of the largest.
template <int kN>
struct Wgmma;

// PTX names every register of d. Groups of 8 tiles, 32 registers: their places
// in the instruction, and the operands.
#define KVFORGE_PLACES(a, b, c, d, e, f, g, h) \
  "%" #a ", %" #b ", %" #c ", %" #d ", %" #e ", %" #f ", %" #g ", %" #h
#define KVFORGE_PLACES_0 KVFORGE_PLACES(0, 1, 2, 3, 4, 5, 6, 7)
#define KVFORGE_PLACES_1 KVFORGE_PLACES(8, 9, 10, 11, 12, 13, 14, 15)
#define KVFORGE_PLACES_2 KVFORGE_PLACES(16, 17, 18, 19, 20, 21, 22, 23)
#define KVFORGE_PLACES_3 KVFORGE_PLACES(24, 25, 26, 27, 28, 29, 30, 31)
#define KVFORGE_PLACES_4 KVFORGE_PLACES(32, 33, 34, 35, 36, 37, 38, 39)
#define KVFORGE_PLACES_5 KVFORGE_PLACES(40, 41, 42, 43, 44, 45, 46, 47)
#define KVFORGE_PLACES_6 KVFORGE_PLACES(48, 49, 50, 51, 52, 53, 54, 55)
#define KVFORGE_PLACES_7 KVFORGE_PLACES(56, 57, 58, 59, 60, 61, 62, 63)
#define KVFORGE_PLACES_8 KVFORGE_PLACES(64, 65, 66, 67, 68, 69, 70, 71)
#define KVFORGE_PLACES_9 KVFORGE_PLACES(72, 73, 74, 75, 76, 77, 78, 79)
#define KVFORGE_PLACES_10 KVFORGE_PLACES(80, 81, 82, 83, 84, 85, 86, 87)
#define KVFORGE_PLACES_11 KVFORGE_PLACES(88, 89, 90, 91, 92, 93, 94, 95)
#define KVFORGE_PLACES_12 KVFORGE_PLACES(96, 97, 98, 99, 100, 101, 102, 103)
#define KVFORGE_PLACES_13 KVFORGE_PLACES(104, 105, 106, 107, 108, 109, 110, 111)
#define KVFORGE_PLACES_14 KVFORGE_PLACES(112, 113, 114, 115, 116, 117, 118, 119)
#define KVFORGE_PLACES_15 KVFORGE_PLACES(120, 121, 122, 123, 124, 125, 126, 127)
#define KVFORGE_TILES(d, i)                                    \
  "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3]),  \
      "+f"(d[i + 1][0]), "+f"(d[i + 1][1]), "+f"(d[i + 1][2]), \
      "+f"(d[i + 1][3])

// `places` and `tiles`: parenthesised lists of the above; n0 ..: numbers of the
// operands behind d.
#define KVFORGE_UNWRAP(...) __VA_ARGS__
#define KVFORGE_WGMMA_OF(kName, kType, kN, places, tiles, n0, n1, n2, n3, n4, \
                         n5, n6)                                              \
  template <bool kByRow>                                                      \
  static __device__ __forceinline__ void kName(                               \
      float(&d)[kN / 8][4], const u32(&a)[4], u64 b, bool keep) {             \
    asm volatile(                                                             \
        "{\n"                                                                 \
        ".reg .pred keep;\n"                                                  \
        "setp.ne.b32 keep, %" #n5                                             \
        ", 0;\n"                                                              \
        "wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32." kType "." kType    \
        " {" places "}, {%" #n0 ", %" #n1 ", %" #n2 ", %" #n3 "}, %" #n4      \
        ", keep, 1, 1, %" #n6                                                 \
        ";\n"                                                                 \
        "}"                                                                   \
        : KVFORGE_UNWRAP tiles                                                \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                 \
          "r"(static_cast<u32>(keep)), "n"(kByRow ? 1 : 0)                    \
        : "memory");                                                          \
  }                                                                           \
  template <bool kByRow>                                                      \
  static __device__ __forceinline__ void kName(float(&d)[kN / 8][4], u64 a,   \
                                               u64 b, bool keep) {            \
    asm volatile(                                                             \
        "{\n"                                                                 \
        ".reg .pred keep;\n"                                                  \
        "setp.ne.b32 keep, %" #n2                                             \
        ", 0;\n"                                                              \
        "wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32." kType "." kType    \
        " {" places "}, %" #n0 ", %" #n1 ", keep, 1, 1, 0, %" #n3             \
        ";\n"                                                                 \
        "}"                                                                   \
        : KVFORGE_UNWRAP tiles                                                \
        : "l"(a), "l"(b), "r"(static_cast<u32>(keep)), "n"(kByRow ? 1 : 0)    \
        : "memory");                                                          \
  }
#define KVFORGE_WGMMA_E4M3(kN, places, tiles, n0, n1, n2, n3, n4, n5, n6)    \
  static __device__ __forceinline__ void E4m3(                               \
      float(&d)[kN / 8][4], const u32(&a)[4], u64 b, bool keep) {            \
    asm volatile(                                                            \
        "{\n"                                                                \
        ".reg .pred keep;\n"                                                 \
        "setp.ne.b32 keep, %" #n5                                            \
        ", 0;\n"                                                             \
        "wgmma.mma_async.sync.aligned.m64n" #kN "k32.f32.e4m3.e4m3 {" places \
        "}, {%" #n0 ", %" #n1 ", %" #n2 ", %" #n3 "}, %" #n4                 \
        ", keep, 1, 1;\n"                                                    \
        "}"                                                                  \
        : KVFORGE_UNWRAP tiles                                               \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                \
          "r"(static_cast<u32>(keep))                                        \
        : "memory");                                                         \
  }                                                                          \
  static __device__ __forceinline__ void E4m3(float(&d)[kN / 8][4], u64 a,   \
                                              u64 b, bool keep) {            \
    asm volatile(                                                            \
        "{\n"                                                                \
        ".reg .pred keep;\n"                                                 \
        "setp.ne.b32 keep, %" #n2                                            \
        ", 0;\n"                                                             \
        "wgmma.mma_async.sync.aligned.m64n" #kN "k32.f32.e4m3.e4m3 {" places \
        "}, %" #n0 ", %" #n1                                                 \
        ", keep, 1, 1;\n"                                                    \
        "}"                                                                  \
        : KVFORGE_UNWRAP tiles                                               \
        : "l"(a), "l"(b), "r"(static_cast<u32>(keep))                        \
        : "memory");                                                         \
  }
#define KVFORGE_WGMMA(kN, places, tiles, ...)                      \
  template <>                                                      \
  struct Wgmma<kN> {                                               \
    KVFORGE_WGMMA_OF(F16, "f16", kN, places, tiles, __VA_ARGS__)   \
    KVFORGE_WGMMA_OF(Bf16, "bf16", kN, places, tiles, __VA_ARGS__) \
    KVFORGE_WGMMA_E4M3(kN, places, tiles, __VA_ARGS__)             \
  };

KVFORGE_WGMMA(64,
              KVFORGE_PLACES_0 ", " KVFORGE_PLACES_1 ", " KVFORGE_PLACES_2
                               ", " KVFORGE_PLACES_3,
              (KVFORGE_TILES(d, 0), KVFORGE_TILES(d, 2), KVFORGE_TILES(d, 4),
               KVFORGE_TILES(d, 6)),
              32, 33, 34, 35, 36, 37, 38)
KVFORGE_WGMMA(80,
              KVFORGE_PLACES_0 ", " KVFORGE_PLACES_1 ", " KVFORGE_PLACES_2
                               ", " KVFORGE_PLACES_3 ", " KVFORGE_PLACES_4,
              (KVFORGE_TILES(d, 0), KVFORGE_TILES(d, 2), KVFORGE_TILES(d, 4),
               KVFORGE_TILES(d, 6), KVFORGE_TILES(d, 8)),
              40, 41, 42, 43, 44, 45, 46)
KVFORGE_WGMMA(96,
              KVFORGE_PLACES_0 ", " KVFORGE_PLACES_1 ", " KVFORGE_PLACES_2
                               ", " KVFORGE_PLACES_3 ", " KVFORGE_PLACES_4
                               ", " KVFORGE_PLACES_5,
              (KVFORGE_TILES(d, 0), KVFORGE_TILES(d, 2), KVFORGE_TILES(d, 4),
               KVFORGE_TILES(d, 6), KVFORGE_TILES(d, 8), KVFORGE_TILES(d, 10)),
              48, 49, 50, 51, 52, 53, 54)
KVFORGE_WGMMA(112,
              KVFORGE_PLACES_0 ", " KVFORGE_PLACES_1 ", " KVFORGE_PLACES_2
                               ", " KVFORGE_PLACES_3 ", " KVFORGE_PLACES_4
                               ", " KVFORGE_PLACES_5 ", " KVFORGE_PLACES_6,
              (KVFORGE_TILES(d, 0), KVFORGE_TILES(d, 2), KVFORGE_TILES(d, 4),
               KVFORGE_TILES(d, 6), KVFORGE_TILES(d, 8), KVFORGE_TILES(d, 10),
               KVFORGE_TILES(d, 12)),
              56, 57, 58, 59, 60, 61, 62)
KVFORGE_WGMMA(128,
              KVFORGE_PLACES_0 ", " KVFORGE_PLACES_1 ", " KVFORGE_PLACES_2
                               ", " KVFORGE_PLACES_3 ", " KVFORGE_PLACES_4
                               ", " KVFORGE_PLACES_5 ", " KVFORGE_PLACES_6
                               ", " KVFORGE_PLACES_7,
              (KVFORGE_TILES(d, 0), KVFORGE_TILES(d, 2), KVFORGE_TILES(d, 4),
               KVFORGE_TILES(d, 6), KVFORGE_TILES(d, 8), KVFORGE_TILES(d, 10),
               KVFORGE_TILES(d, 12), KVFORGE_TILES(d, 14)),
              64, 65, 66, 67, 68, 69, 70)
KVFORGE_WGMMA(192,
              KVFORGE_PLACES_0
              ", " KVFORGE_PLACES_1 ", " KVFORGE_PLACES_2 ", " KVFORGE_PLACES_3
              ", " KVFORGE_PLACES_4 ", " KVFORGE_PLACES_5 ", " KVFORGE_PLACES_6
              ", " KVFORGE_PLACES_7 ", " KVFORGE_PLACES_8 ", " KVFORGE_PLACES_9
              ", " KVFORGE_PLACES_10 ", " KVFORGE_PLACES_11,
              (KVFORGE_TILES(d, 0), KVFORGE_TILES(d, 2), KVFORGE_TILES(d, 4),
               KVFORGE_TILES(d, 6), KVFORGE_TILES(d, 8), KVFORGE_TILES(d, 10),
               KVFORGE_TILES(d, 12), KVFORGE_TILES(d, 14), KVFORGE_TILES(d, 16),
               KVFORGE_TILES(d, 18), KVFORGE_TILES(d, 20),
               KVFORGE_TILES(d, 22)),
              96, 97, 98, 99, 100, 101, 102)
KVFORGE_WGMMA(256,
              KVFORGE_PLACES_0
              ", " KVFORGE_PLACES_1 ", " KVFORGE_PLACES_2 ", " KVFORGE_PLACES_3
              ", " KVFORGE_PLACES_4 ", " KVFORGE_PLACES_5 ", " KVFORGE_PLACES_6
              ", " KVFORGE_PLACES_7 ", " KVFORGE_PLACES_8 ", " KVFORGE_PLACES_9
              ", " KVFORGE_PLACES_10 ", " KVFORGE_PLACES_11
              ", " KVFORGE_PLACES_12 ", " KVFORGE_PLACES_13
              ", " KVFORGE_PLACES_14 ", " KVFORGE_PLACES_15,
              (KVFORGE_TILES(d, 0), KVFORGE_TILES(d, 2), KVFORGE_TILES(d, 4),
               KVFORGE_TILES(d, 6), KVFORGE_TILES(d, 8), KVFORGE_TILES(d, 10),
               KVFORGE_TILES(d, 12), KVFORGE_TILES(d, 14), KVFORGE_TILES(d, 16),
               KVFORGE_TILES(d, 18), KVFORGE_TILES(d, 20), KVFORGE_TILES(d, 22),
               KVFORGE_TILES(d, 24), KVFORGE_TILES(d, 26), KVFORGE_TILES(d, 28),
               KVFORGE_TILES(d, 30)),
              128, 129, 130, 131, 132, 133, 134)

#undef KVFORGE_WGMMA
#undef KVFORGE_WGMMA_OF
#undef KVFORGE_WGMMA_E4M3
#undef KVFORGE_UNWRAP
#undef KVFORGE_TILES
#undef KVFORGE_PLACES_0
#undef KVFORGE_PLACES_1
#undef KVFORGE_PLACES_2
#undef KVFORGE_PLACES_3
#undef KVFORGE_PLACES_4
#undef KVFORGE_PLACES_5
#undef KVFORGE_PLACES_6
#undef KVFORGE_PLACES_7
#undef KVFORGE_PLACES_8
#undef KVFORGE_PLACES_9
#undef KVFORGE_PLACES_10
#undef KVFORGE_PLACES_11
#undef KVFORGE_PLACES_12
#undef KVFORGE_PLACES_13
#undef KVFORGE_PLACES_14
#undef KVFORGE_PLACES_15
#undef KVFORGE_PLACES

}  // namespace kvforge::arch

#endif  // KVFORGE_TEMPLATES_ARCH_SM90A_CUH_
