// merge: combines partial attention states of the same rows by their LSE.
//
//   out = sum_s exp(lse_s - lse) * out_s,  lse = log sum_s exp(lse_s)
//
// A part with lse -inf counts for nothing, whatever its out holds; a row whose
// parts are all empty gets 0 and -inf. A part with lse NaN makes its row NaN.
//
//   grid   ceil(rows * heads / kBlockM); one warp a (row, head)
#include "kernels/merge_args.h"
#include "ops/softmax.cuh"

namespace kvforge::kernels {

inline constexpr int kMergeThreads = spec::kWarps * 32;

__device__ __forceinline__ void MergeRow(const MergeArgs& args, i64 row,
                                         int head, int lane) {
  const i64 index = row * args.heads + head;
  const i64 rows = static_cast<i64>(args.rows) * args.heads;  // of one split

  float top = ops::NegativeInfinity();
  for (int s = lane; s < args.splits; s += 32) {
    top = arch::MaxNan(
        top, arch::LoadGlobal<float>(args.partial_lse + s * rows + index));
  }
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) {
    top = arch::MaxNan(top, arch::ShuffleXor(top, mask));
  }
  const bool empty = top == ops::NegativeInfinity();
  const auto weight = [&](int s) {
    const float lse =
        arch::LoadGlobal<float>(args.partial_lse + s * rows + index);
    return arch::Exp2((lse - top) * ops::kLog2E);
  };
  float total = 0;
  if (!empty) {
    for (int s = 0; s < args.splits; ++s) total += weight(s);
  }

  u8* out = args.out + row * args.out_row_stride + head * args.out_head_stride;
  for (int channel = 2 * lane; channel < spec::kHeadDim; channel += 64) {
    float x[2] = {0, 0};
    if (!empty) {
      for (int s = 0; s < args.splits; ++s) {
        const float w = weight(s);
        if (w == 0) continue;
        const float* part =
            args.partial_out + (s * rows + index) * spec::kHeadDim + channel;
        x[0] = arch::Fma(arch::LoadGlobal<float>(part), w, x[0]);
        x[1] = arch::Fma(arch::LoadGlobal<float>(part + 1), w, x[1]);
      }
      x[0] = x[0] / total;
      x[1] = x[1] / total;
    }
    constexpr int kWords = spec::OutElement::kBytes / 2;
    u32 words[kWords];
    spec::OutElement::FromF32x2(x[0], x[1], words);
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      arch::StoreGlobal(out + channel * spec::OutElement::kBytes + 4 * i,
                        words[i]);
    }
  }
  if (lane == 0 && args.lse != nullptr) {
    const float lse = empty ? top : top + arch::Log2(total) * ops::kLn2;
    arch::StoreGlobal(args.lse + row * args.lse_row_stride + head, lse);
  }
}

}  // namespace kvforge::kernels

extern "C" __constant__ int kvforge_shared_bytes = 0;
extern "C" __constant__ int kvforge_block_threads =
    kvforge::kernels::kMergeThreads;

extern "C" __global__ void __launch_bounds__(kvforge::kernels::kMergeThreads, 1)
    kvforge_kernel(const __grid_constant__ kvforge::MergeArgs args) {
  using namespace kvforge;
  static_assert(spec::kBlockM == spec::kWarps);
  const i64 index =
      arch::BlockIndex() * spec::kWarps + arch::ThreadIndex() / 32;
  if (index >= static_cast<i64>(args.rows) * args.heads) return;
  kernels::MergeRow(args, index / args.heads,
                    static_cast<int>(index % args.heads),
                    arch::ThreadIndex() % 32);
}
