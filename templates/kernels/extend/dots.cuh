// Scores of a warp's rows: the dots of q and of codes of K.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_DOTS_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_DOTS_CUH_

#include "kernels/extend/queries.cuh"
#include "kernels/extend/shape.cuh"
#include "kernels/extend/stage.cuh"

namespace kvforge::kernels {

__device__ __forceinline__ void ClearScores(
    float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4]) {
#pragma unroll
  for (int m = 0; m < ExtendShape::kMTiles; ++m) {
#pragma unroll
    for (int n = 0; n < ExtendShape::kStepKeys / 8; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) s[m][n][c] = 0;
    }
  }
}

// S of the warp's rows and kStepKeys keys that start at group `group0` of the
// stage, s[m][n] being rows g, g + 8 and keys 8 * n + 2t, + 1: the partial dots
// of each block of channels times the block's factor.
__device__ __forceinline__ void BlockDots(
    u32 shared, ExtendStage stage, int group0, int row_warp, int lane,
    float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4]) {
  using Shape = ExtendShape;
  using KeyRun = ops::KeyRun<KSide, spec::kHeadDim>;
  const int g = lane / 4;
  const int t = lane % 4;
  ClearScores(s);
  // Addresses of more runs than these would not fit the registers.
  constexpr int kRuns = Shape::KOrder::kRuns;
  constexpr int kUnroll = kRuns > 8 || kRuns % 4 == 0 ? 4 : kRuns;
#pragma unroll kUnroll
  for (int run = 0; run < Shape::KOrder::kRuns; ++run) {
    u32 q[KeyRun::kSteps][Shape::kQueryParts][Shape::kMTiles][4];
#pragma unroll
    for (int i = 0; i < KeyRun::kSteps; ++i) {
#pragma unroll
      for (int p = 0; p < Shape::kQueryParts; ++p) {
#pragma unroll
        for (int m = 0; m < Shape::kMTiles; ++m) {
          ops::LoadSharedBytes<16>(
              QueryFragment(shared, p, row_warp * Shape::kMTiles + m,
                            run * KeyRun::kSteps + i, lane),
              q[i][p][m]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < Shape::kStepKeys / 8; ++n) {
      const ops::GroupPlace group = stage.Keys(group0 + n / 2);
      const int first_key = n % 2 * 8;
      KeyRun keys;
      keys.Load(group, first_key + g, run, 0, t);
      float partial[Shape::kMTiles][4] = {};
#pragma unroll
      for (int i = 0; i < KeyRun::kSteps; ++i) {
        u32 k[2];
        keys.Decode(i, k);
#pragma unroll
        for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
          for (int p = 0; p < Shape::kQueryParts; ++p) {
            spec::ScoreOperand::Mma(partial[m], q[i][p][m], k);
          }
        }
      }
      float factor[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        factor[j] = ops::LoadBlockFactor<KSide, spec::kHeadDim>(
            group, first_key + 2 * t + j, run);
      }
#pragma unroll
      for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          s[m][n][c] = arch::Fma(partial[m][c], factor[c % 2], s[m][n][c]);
        }
      }
    }
  }
}

// The same where K has no block factors.
__device__ __forceinline__ void Dots(
    u32 shared, ExtendStage stage, int group0, int row_warp, int lane,
    float (&s)[ExtendShape::kMTiles][ExtendShape::kStepKeys / 8][4]) {
  using Shape = ExtendShape;
  constexpr int kTiles = Shape::kStepKeys / 8;
  const int g = lane / 4;
  const int t = lane % 4;
  ClearScores(s);
#pragma unroll
  for (int run = 0; run < Shape::KOrder::kRuns; ++run) {
    using KeyRun = ops::KeyRun<KSide, spec::kHeadDim>;
#pragma unroll
    for (int part = 0; part < KeyRun::kParts; ++part) {
      KeyRun keys[kTiles];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        keys[n].Load(stage.Keys(group0 + n / 2), n % 2 * 8 + g, run, part, t);
      }
#pragma unroll
      for (int i = 0; i < KeyRun::kSteps; ++i) {
        const int step =
            run * Shape::KOrder::kStepsPerRun + part * KeyRun::kSteps + i;
        u32 q[Shape::kQueryParts][Shape::kMTiles][4];
#pragma unroll
        for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
          for (int p = 0; p < Shape::kQueryParts; ++p) {
            ops::LoadSharedBytes<16>(
                QueryFragment(shared, p, row_warp * Shape::kMTiles + m, step,
                              lane),
                q[p][m]);
          }
        }
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          u32 k[2];
          keys[n].Decode(i, k);
#pragma unroll
          for (int m = 0; m < Shape::kMTiles; ++m) {
#pragma unroll
            for (int p = 0; p < Shape::kQueryParts; ++p) {
              spec::ScoreOperand::Mma(s[m][n], q[p][m], k);
            }
          }
        }
      }
    }
  }
}

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_DOTS_CUH_
