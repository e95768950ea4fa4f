// gather: reads rows of listed slots of a paged cache back to 16 bit or f32.
//
//   grid   2 * ceil(rows / kBlockM), rows = num_rows * num_kv_heads; the first
//          half of the blocks serves K, the second V
//   block  kWarps warps; a row is held by kLanes lanes, 16 values each
//
// A value is code * block scale * scale (+ minimum): exact up to one rounding
// to f32, then rounded to the output type. A 16-bit cache read as its own type
// is copied bit for bit. A slot that is negative, or past the cache, gives
// zeros, and nothing of the cache is read for it.
#include "kernels/gather_args.h"
#include "ops/access.cuh"
#include "ops/spread_codes.cuh"

namespace kvforge::kernels {

using spec::KSide;
using spec::VSide;

__device__ constexpr int LanesOfRow(int head_dim) {
  int lanes = 1;
  while (lanes * 16 < head_dim) lanes *= 2;
  return lanes;
}

struct GatherShape {
  static constexpr int kThreads = spec::kWarps * 32;
  static constexpr int kLanes = LanesOfRow(
      spec::kHeadDim > spec::kValueDim ? spec::kHeadDim : spec::kValueDim);
  static constexpr int kWarpRows = 32 / kLanes;
  static_assert(kLanes <= 32, "a row is held by one warp");
  static_assert(spec::kBlockM == spec::kWarps * kWarpRows);
};

// The 16 values of channels 16 * part .. + 15 of a slot's row, as output words.
template <class Side, int kDim>
__device__ __forceinline__ void ReadPart(
    const GatherArgs& args, const CacheView& cache, i64 slot, int head,
    int part, u32 (&words)[4 * spec::OutElement::kBytes]) {
  constexpr int kCodeBytes = 16 * Side::kCodeBits / 8;
  const i64 page = slot / spec::kPageSize;
  const i64 offset = slot % spec::kPageSize;
  const auto at = [&](const StridedBytes& bytes) {
    return bytes.base + page * bytes.page_stride + offset * bytes.slot_stride +
           head * bytes.head_stride;
  };
  u32 codes[kCodeBytes / 4];
  ops::LoadBytes<kCodeBytes>(at(cache.codes) + part * kCodeBytes,
                             cache.code_bytes, codes);
  if constexpr (Side::kPlain && formats::kSameElement<typename Side::Element,
                                                      spec::OutElement>) {
#pragma unroll
    for (int i = 0; i < kCodeBytes / 4; ++i) words[i] = codes[i];
    return;
  }
  float row_scale = 1.0f;
  float minimum = 0.0f;
  float block_scale = 1.0f;
  if constexpr (Side::kRowScale) {
    row_scale = arch::LoadGlobal<float>(at(cache.row_scale));
  }
  if constexpr (Side::kRowMinimum) {
    minimum = arch::LoadGlobal<float>(at(cache.row_scale) + 4);
  }
  if constexpr (Side::kBlock > 0) {
    static_assert(Side::kBlock % 16 == 0, "one block a lane");
    block_scale = Side::BlockScale(
        arch::LoadGlobal<u8>(at(cache.block_scale) + part * 16 / Side::kBlock));
  }
  const float scale = Side::Scale(args, head, row_scale);
#pragma unroll
  for (int quad = 0; quad < 4; ++quad) {
    u32 lo = codes[quad * Side::kCodeBits / 8];
    if constexpr (Side::kCodeBits == 4) {
      lo = ops::SpreadCodes(lo >> quad % 2 * 16);
    }
    const u32 hi =
        Side::kCodeBits == 16 ? codes[kCodeBytes / 16 * quad + 1] : 0;
    u32 decoded[2];
    Side::Decode4(lo, hi, decoded);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      float x[2];
      Side::Element::ToF32x2(&decoded[pair], x[0], x[1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float own_scale = scale;
        if constexpr (Side::kChannelScale) {
          own_scale = arch::LoadGlobal<float>(
              formats::GivenChannelScales<kDim>(cache, head) + 16 * part +
              4 * quad + 2 * pair + i);
        }
        x[i] = Side::Value(x[i], block_scale, own_scale, minimum);
      }
      constexpr int kPairWords = spec::OutElement::kBytes / 2;
      spec::OutElement::FromF32x2(x[0], x[1],
                                  &words[(2 * quad + pair) * kPairWords]);
    }
  }
}

template <class Side, int kDim>
__device__ __forceinline__ void GatherRow(const GatherArgs& args,
                                          const OutputRows& out,
                                          const CacheView& cache, i64 row,
                                          int head, int part) {
  constexpr int kPartBytes = 16 * spec::OutElement::kBytes;
  if (part * 16 >= kDim) return;
  u32 words[kPartBytes / 4] = {};
  const i64 slot = arch::LoadGlobal<i64>(args.slots + row);
  if (slot >= 0 && slot < args.num_slots) {
    ReadPart<Side, kDim>(args, cache, slot, head, part, words);
  }
  ops::StoreBytes<kPartBytes>(out.base + row * out.token_stride +
                                  head * out.head_stride + part * kPartBytes,
                              16, words);
}

}  // namespace kvforge::kernels

extern "C" __constant__ int kvforge_shared_bytes = 0;
extern "C" __constant__ int kvforge_block_threads =
    kvforge::kernels::GatherShape::kThreads;

extern "C" __global__ void __launch_bounds__(
    kvforge::kernels::GatherShape::kThreads, 1)
    kvforge_kernel(const __grid_constant__ kvforge::GatherArgs args) {
  using namespace kvforge;
  using Shape = kernels::GatherShape;
  const i64 blocks = arch::BlockCount() / 2;
  const bool value_side = arch::BlockIndex() >= blocks;
  const i64 block = arch::BlockIndex() - (value_side ? blocks : 0);
  const int thread = arch::ThreadIndex();
  const i64 row = block * spec::kBlockM + thread / Shape::kLanes;
  const int part = thread % Shape::kLanes;
  const i64 rows = static_cast<i64>(args.num_rows) * args.num_kv_heads;
  if (row >= rows) return;
  const i64 index = row / args.num_kv_heads;
  const int head = static_cast<int>(row % args.num_kv_heads);
  if (value_side) {
    kernels::GatherRow<spec::VSide, spec::kValueDim>(args, args.v_out, args.v,
                                                     index, head, part);
  } else {
    kernels::GatherRow<spec::KSide, spec::kHeadDim>(args, args.k_out, args.k,
                                                    index, head, part);
  }
}
