// The query rows of a block to e4m3, each with a factor that brings its largest
// magnitude to e4m3's.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_FP8_QUERIES_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_FP8_QUERIES_CUH_

#include "kernels/extend/fp8_ring.cuh"
#include "ops/attention_row.cuh"

namespace kvforge::kernels {

// The warp's 16 rows to the image of its warpgroup; row facts of this thread.
// A lane takes four channels. A row's largest magnitude below kLeast counts as
// that: its scores are 0 for any scale of K, and the factor is finite.
__device__ __forceinline__ void LoadFp8Queries(const AttentionArgs& args,
                                               const ops::Sequence& sequence,
                                               int row0, int warp, int lane,
                                               u32 image, ExtendState& state) {
  using Element = spec::QueryElement;
  using Operand = spec::ScoreOperand;
  constexpr float kLeast = 0x1p-100f;
  constexpr int kBytes = 4 * Element::kBytes;
  const float uniform = spec::ScoreUniform(args, sequence.kv_head);
  state.first_row = row0 + warp * 16 + lane / 4;
#pragma unroll 4
  for (int row = 0; row < 16; ++row) {
    const u8* values =
        ops::QueryOf<spec::kGroup>(args, sequence, row0 + warp * 16 + row);
    u32 words[Element::kBytes];
    ops::LoadBytes<kBytes>(values + lane * kBytes, kBytes, words);
    float x[4];
    Element::ToF32x2(words, x[0], x[1]);
    Element::ToF32x2(words + Element::kBytes / 2, x[2], x[3]);
    float amax = kLeast;
#pragma unroll
    for (int i = 0; i < 4; ++i) amax = arch::Max(amax, arch::Abs(x[i]));
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
      amax = arch::Max(amax, arch::ShuffleXor(amax, mask));
    }
    const float factor = Operand::kMax / amax;
    const u32 codes = Operand::Pack4(x[0] * factor, x[1] * factor,
                                     x[2] * factor, x[3] * factor);
    const int line = warp % 4 * 16 + row;
    arch::StoreShared(image + line * Fp8Ring::kLineBytes +
                          ((lane / 4) ^ (line % 8)) * 16 + lane % 4 * 4,
                      codes);
    const float scale = uniform * (amax / Operand::kMax);
#pragma unroll
    for (int i = 0; i < ExtendState::kRows; ++i) {
      if (row == lane / 4 + 8 * i) state.uniform[i] = scale;
    }
  }
#pragma unroll
  for (int i = 0; i < ExtendState::kRows; ++i) state.softmax[i].Clear();
#pragma unroll
  for (int n = 0; n < ExtendShape::kNTiles; ++n) {
#pragma unroll
    for (int c = 0; c < 4; ++c) state.out[0][n][c] = 0;
  }
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_FP8_QUERIES_CUH_
