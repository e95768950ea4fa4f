// store: quantizes fresh K and V rows and scatters them into a paged cache.
//
//   grid   2 * ceil(rows / kBlockM), rows = num_tokens * num_kv_heads; the
//          first half of the blocks serves K, the second V
//   block  kWarps warps; a row is held by kLanes lanes, 16 values each
//
// Row i of a token goes to slots[token] = page * kPageSize + offset; a negative
// slot, or one past the cache, is skipped: nothing of it is read or written.
#include "formats/operand.cuh"
#include "formats/quantizer.cuh"
#include "kernels/store_args.h"
#include "ops/access.cuh"

namespace kvforge::kernels {

__device__ constexpr int LanesOfRow(int head_dim) {
  int lanes = 1;
  while (lanes * 16 < head_dim) lanes *= 2;
  return lanes;
}

struct StoreShape {
  static constexpr int kThreads = spec::kWarps * 32;
  static constexpr int kLanes = LanesOfRow(
      spec::kHeadDim > spec::kValueDim ? spec::kHeadDim : spec::kValueDim);
  static constexpr int kWarpRows = 32 / kLanes;
  static_assert(kLanes <= 32, "a row is held by one warp");
  static_assert(spec::kBlockM == spec::kWarps * kWarpRows);
};

// One lane's part of one row. `token` < 0: no row; the lane only takes part in
// the warp's reductions.
template <class Quantizer, int kDim>
__device__ __forceinline__ void StoreRow(const StoreArgs& args,
                                         const SourceRows& source,
                                         const CacheView& cache, i64 token,
                                         int head, int part) {
  using Source = spec::SourceElement;
  constexpr int kSourceBytes = 16 * Source::kBytes;
  constexpr int kCodeBytes = 16 * Quantizer::kCodeBits / 8;

  const i64 slot = token < 0 ? -1 : arch::LoadGlobal<i64>(args.slots + token);
  const bool stored = slot >= 0 && slot < args.num_slots;

  // Lanes past the row's end hold its last part again: they change no maximum.
  const int source_part = part * 16 < kDim ? part : kDim / 16 - 1;
  u32 raw[kSourceBytes / 4] = {};
  if (stored) {
    ops::LoadBytes<kSourceBytes>(source.base + token * source.token_stride +
                                     head * source.head_stride +
                                     source_part * kSourceBytes,
                                 source.access_bytes, raw);
  }
  u32 codes[kCodeBytes / 4];
  formats::Sidecars sidecars = {0, 0, 0};
  if constexpr (formats::kSameElement<typename Quantizer::Element, Source>) {
#pragma unroll
    for (int i = 0; i < kCodeBytes / 4; ++i) codes[i] = raw[i];
  } else {
    float x[16];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      Source::ToF32x2(&raw[i * (Source::kBytes / 2)], x[2 * i], x[2 * i + 1]);
    }
    float given_scale = 0;
    if constexpr (Quantizer::kGivenPerChannel) {
      const float* scales =
          formats::GivenChannelScales<kDim>(cache, head) + source_part * 16;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        x[i] = x[i] / arch::LoadGlobal<float>(scales + i);
      }
    } else if constexpr (Quantizer::kGivenPerHead) {
      given_scale = formats::GivenHeadScale(cache, head);
    } else {
      given_scale = formats::GivenScale(cache);
    }
    Quantizer::template Quantize<StoreShape::kLanes>(x, given_scale, codes,
                                                     sidecars);
  }
  if (!stored || part * 16 >= kDim) return;

  const i64 page = slot / spec::kPageSize;
  const i64 offset = slot % spec::kPageSize;
  const auto at = [&](const StridedBytes& bytes) {
    return bytes.base + page * bytes.page_stride + offset * bytes.slot_stride +
           head * bytes.head_stride;
  };
  ops::StoreBytes<kCodeBytes>(at(cache.codes) + part * kCodeBytes,
                              cache.code_bytes, codes);
  if constexpr (Quantizer::kRowScale) {
    if (part == 0) arch::StoreGlobal(at(cache.row_scale), sidecars.row_scale);
  }
  if constexpr (Quantizer::kRowMinimum) {
    if (part == 0) {
      arch::StoreGlobal(at(cache.row_scale) + 4, sidecars.row_minimum);
    }
  }
  if constexpr (Quantizer::kBlock > 0) {
    constexpr int kLanesOfBlock = Quantizer::kBlock / 16;
    static_assert(Quantizer::kBlock == 16 * kLanesOfBlock);
    if (part % kLanesOfBlock == 0) {
      arch::StoreGlobal(at(cache.block_scale) + part / kLanesOfBlock,
                        static_cast<u8>(sidecars.block_scale));
    }
  }
}

}  // namespace kvforge::kernels

extern "C" __constant__ int kvforge_shared_bytes = 0;
extern "C" __constant__ int kvforge_block_threads =
    kvforge::kernels::StoreShape::kThreads;

extern "C" __global__ void __launch_bounds__(
    kvforge::kernels::StoreShape::kThreads, 1)
    kvforge_kernel(const __grid_constant__ kvforge::StoreArgs args) {
  using namespace kvforge;
  using Shape = kernels::StoreShape;
  const i64 blocks = arch::BlockCount() / 2;
  const bool value_side = arch::BlockIndex() >= blocks;
  const i64 block = arch::BlockIndex() - (value_side ? blocks : 0);
  const int thread = arch::ThreadIndex();
  const i64 row = block * spec::kBlockM + thread / Shape::kLanes;
  const int part = thread % Shape::kLanes;
  const i64 rows = static_cast<i64>(args.num_tokens) * args.num_kv_heads;
  const i64 token = row < rows ? row / args.num_kv_heads : -1;
  const int head = static_cast<int>(row % args.num_kv_heads);
  if (value_side) {
    kernels::StoreRow<spec::VQuantizer, spec::kValueDim>(
        args, args.v_src, args.v, token, head, part);
  } else {
    kernels::StoreRow<spec::KQuantizer, spec::kHeadDim>(
        args, args.k_src, args.k, token, head, part);
  }
}
