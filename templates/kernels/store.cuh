// store: quantizes fresh K and V rows and scatters them into a paged cache.
//
//   grid   ceil(rows / kBlockM), rows = num_tokens * num_kv_heads
//   block  kWarps warps; a row is held by kLanes lanes, 16 values each of K and
//          of V
//
// Row i of a token goes to slots[token] = page * kPageSize + offset; a negative
// slot, or one past the cache, is skipped: nothing of it is written. The slot
// and both source rows are on their way before any is used, so a small batch
// waits for memory once and a large one has 64 bytes a thread in flight. Where
// grids overlap, all that comes before happens under the end of the last grid.
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

// One lane's part of one row of one side.
template <class Quantizer, int kDim>
struct SideRow {
  using Source = spec::SourceElement;
  static constexpr int kSourceBytes = 16 * Source::kBytes;
  static constexpr int kCodeBytes = 16 * Quantizer::kCodeBits / 8;

  u32 raw[kSourceBytes / 4];

  // Lanes past the row's end hold its last part again: they change no maximum.
  __device__ __forceinline__ void Load(const SourceRows& source, i64 token,
                                       u32 head, int part) {
    const int source_part = part * 16 < kDim ? part : kDim / 16 - 1;
    ops::LoadBytes<kSourceBytes>(source.base + token * source.token_stride +
                                     head * source.head_stride +
                                     source_part * kSourceBytes,
                                 source.access_bytes, raw);
  }

  // All lanes of the warp; those of a row that is not `stored` write nothing.
  __device__ __forceinline__ void Store(const CacheView& cache, bool stored,
                                        u64 page, u32 offset, u32 head,
                                        int part) {
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
        const int source_part = part * 16 < kDim ? part : kDim / 16 - 1;
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

    const auto at = [&](const StridedBytes& bytes) {
      return bytes.base + static_cast<i64>(page) * bytes.page_stride +
             offset * bytes.slot_stride + head * bytes.head_stride;
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
};

}  // namespace kvforge::kernels

extern "C" __constant__ int kvforge_shared_bytes = 0;
extern "C" __constant__ int kvforge_block_threads =
    kvforge::kernels::StoreShape::kThreads;
extern "C" __constant__ int kvforge_overlaps_launches =
    kvforge::arch::kGridsOverlap;

extern "C" __global__ void __launch_bounds__(
    kvforge::kernels::StoreShape::kThreads, 1)
    kvforge_kernel(const __grid_constant__ kvforge::StoreArgs args) {
  using namespace kvforge;
  using Shape = kernels::StoreShape;
  arch::AllowNextGrid();
  const u32 thread = arch::ThreadIndex();
  const int part = thread % Shape::kLanes;
  const i64 rows = static_cast<i64>(args.num_tokens) * args.num_kv_heads;
  i64 row = arch::BlockIndex() * spec::kBlockM + thread / Shape::kLanes;
  const bool exists = row < rows;
  if (!exists) row = rows - 1;  // takes part in the warp's reductions only
  i64 token;
  if (rows <= 0xffffffffll) {  // nearly always, and much the cheaper division
    token = static_cast<u32>(row) / static_cast<u32>(args.num_kv_heads);
  } else {
    token = row / args.num_kv_heads;
  }
  const u32 head = static_cast<u32>(row - token * args.num_kv_heads);

  kernels::SideRow<spec::KQuantizer, spec::kHeadDim> k;
  kernels::SideRow<spec::VQuantizer, spec::kValueDim> v;
  arch::WaitForPriorGrids();
  const i64 slot = arch::LoadGlobal<i64>(args.slots + token);
  k.Load(args.k_src, token, head, part);
  v.Load(args.v_src, token, head, part);
  const bool stored = exists && slot >= 0 && slot < args.num_slots;
  // Of a negative slot these mean nothing and are not used.
  const u64 page = static_cast<u64>(slot) / spec::kPageSize;
  const u32 offset = static_cast<u64>(slot) % spec::kPageSize;
  k.Store(args.k, stored, page, offset, head, part);
  v.Store(args.v, stored, page, offset, head, part);
}
