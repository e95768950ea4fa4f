// A warpgroup: the words of `in` are a's shared image (64 rows, 128 bytes
// deep), b's (kColumns, 128 bytes deep), a's registers (4 steps, 128 threads,
// 4) and d (128 threads, kColumns / 2). out is d after four products, 32 bytes
// deep each, the first without what d held if kFresh. n: words of b's image.
#include "micro/args.cuh"

namespace kvforge {

inline constexpr int kImageA = 64 * 128;
inline constexpr int kImageB =
    (kByRow ? (kColumns + 63) / 64 * 64 : kColumns) * 128;

template <class A>
__device__ __forceinline__ void Product(float (&d)[kColumns / 8][4], const A& a,
                                        u64 b, bool keep) {
  using Wgmma = arch::Wgmma<kColumns>;
  if constexpr (kElement == Element::F16) {
    Wgmma::template F16<kByRow>(d, a, b, keep);
  } else if constexpr (kElement == Element::Bf16) {
    Wgmma::template Bf16<kByRow>(d, a, b, keep);
  } else {
    Wgmma::E4m3(d, a, b, keep);
  }
}

}  // namespace kvforge

extern "C" __constant__ int kvforge_block_threads = 128;
extern "C" __constant__ int kvforge_shared_bytes =
    kvforge::kImageA + kvforge::kImageB;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int t = ThreadIndex();
  const u32 shared = SharedBase();
  for (int i = t; i < (kImageA + kImageB) / 4; i += 128) {
    StoreShared(shared + 4 * i, In(args, i));
  }
  AsyncFence();
  BlockSync();
  const int fragments = kImageA / 4 + args.n;
  const int sums = fragments + 4 * 128 * 4;
  float d[kColumns / 8][4];
  for (int i = 0; i < kColumns / 2; ++i) {
    d[i / 4][i % 4] = InF32(args, sums + t * (kColumns / 2) + i);
  }
  u32 a[4][4];
  for (int i = 0; i < 16; ++i) {
    a[i / 4][i % 4] = In(args, fragments + (i / 4 * 128 + t) * 4 + i % 4);
  }
  WgmmaBegin();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const u64 a_image = SharedMatrix(shared + 32 * step, 16, 1024);
    const u64 b_image =
        kByRow ? SharedMatrix(shared + kImageA + 2048 * step, 8192, 1024)
               : SharedMatrix(shared + kImageA + 32 * step, 16, 1024);
    const bool keep = !kFresh || step > 0;
    if constexpr (kSharedA) {
      Product(d, a_image, b_image, keep);
    } else {
      Product(d, a[step], b_image, keep);
    }
  }
  WgmmaCommit();
  WgmmaWait<0>(d);
  for (int i = 0; i < kColumns / 2; ++i) {
    OutF32(args, t * (kColumns / 2) + i, d[i / 4][i % 4]);
  }
}
