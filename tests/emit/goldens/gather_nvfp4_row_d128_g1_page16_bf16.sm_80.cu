// gather/nvfp4_row/d128/g1/page16/bf16 for sm_80, tile 16x0/1/4
#include "arch/select.cuh"
#include "formats/element.cuh"
#include "formats/operand.cuh"
#include "formats/e2m1.cuh"
#include "formats/e4m3.cuh"
#include "kernels/gather_args.h"

namespace kvforge::spec {

constexpr int kHeadDim = 128;
constexpr int kValueDim = 128;
constexpr int kPageSize = 16;
constexpr int kBlockM = 16;
constexpr int kWarps = 4;
using OutElement = formats::Bf16;

struct KSide {
  using Element = formats::F16;  // what codes decode to
  static constexpr int kCodeBits = 4;
  static constexpr bool kRowScale = true;
  static constexpr bool kRowMinimum = false;
  static constexpr int kBlock = 16;
  static constexpr bool kChannelScale = false;  // given, in place of Scale
  // Codes are values.
  static constexpr bool kPlain = false;
  // The codes in lo's low (hi 0) or high nibbles to two pairs.
  static __device__ void Decode4(u32 lo, u32 hi, u32 (&out)[2]) {
    formats::E2m1ToF16Placed4(lo, hi, out);
  }
  // The scale of a block from its code; kBlock > 0 only.
  static __device__ float BlockScale(u32 code) {
    return formats::E4m3ToF32(code);
  }
  // One value for all elements of a row.
  static __device__ float Scale(const GatherArgs& /*args*/, int /*kv_head*/, float row_scale) {
    return row_scale;
  }
  // One value, rounded once, from what Decode4 gives.
  static __device__ float Value(float x, float block_scale, float scale, float /*minimum*/) {
    x = x * 0x1p14f;
    x = x * block_scale;
    x = x * scale;
    return x;
  }
};
struct VSide {
  using Element = formats::F16;  // what codes decode to
  static constexpr int kCodeBits = 4;
  static constexpr bool kRowScale = true;
  static constexpr bool kRowMinimum = false;
  static constexpr int kBlock = 16;
  static constexpr bool kChannelScale = false;  // given, in place of Scale
  // Codes are values.
  static constexpr bool kPlain = false;
  // The codes in lo's low (hi 0) or high nibbles to two pairs.
  static __device__ void Decode4(u32 lo, u32 hi, u32 (&out)[2]) {
    formats::E2m1ToF16Placed4(lo, hi, out);
  }
  // The scale of a block from its code; kBlock > 0 only.
  static __device__ float BlockScale(u32 code) {
    return formats::E4m3ToF32(code);
  }
  // One value for all elements of a row.
  static __device__ float Scale(const GatherArgs& /*args*/, int /*kv_head*/, float row_scale) {
    return row_scale;
  }
  // One value, rounded once, from what Decode4 gives.
  static __device__ float Value(float x, float block_scale, float scale, float /*minimum*/) {
    x = x * 0x1p14f;
    x = x * block_scale;
    x = x * scale;
    return x;
  }
};

}  // namespace kvforge::spec

#include "kernels/gather.cuh"
