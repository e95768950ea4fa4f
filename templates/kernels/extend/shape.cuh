// How a block of extend is laid out: rows, channels and keys of a warp, shared
// memory, and what a thread keeps in registers from tile to tile.
#ifndef KVFORGE_TEMPLATES_KERNELS_EXTEND_SHAPE_CUH_
#define KVFORGE_TEMPLATES_KERNELS_EXTEND_SHAPE_CUH_

#include "ops/custom_mask.cuh"
#include "ops/fragments.cuh"
#include "ops/key_tile.cuh"
#include "ops/query_row.cuh"
#include "ops/score_bias.cuh"
#include "ops/softmax.cuh"

namespace kvforge::kernels {

using spec::KSide;
using spec::VSide;

struct ExtendShape {
  using KGroup = ops::KeyGroup<KSide, spec::kHeadDim>;
  using VGroup = ops::KeyGroup<VSide, spec::kValueDim>;
  using KOrder = ops::ChannelOrder<KSide, spec::kHeadDim>;
  using VOrder = ops::ValueOrder<VSide, spec::kValueDim>;
  static constexpr bool kDotBlocks = ops::kBlockFactors<KSide>;
  static constexpr bool kWeightBlocks = ops::kBlockFactors<VSide>;

  static constexpr int kDimSplit = (spec::kValueDim + 255) / 256;
  static_assert(kDimSplit == 1 || !spec::kWarpgroups);
  static constexpr int kRowWarps = spec::kWarps / kDimSplit;
  static constexpr int kWarpRows = spec::kBlockM / kRowWarps;
  static constexpr int kMTiles = kWarpRows / 16;
  static constexpr int kRuns = VOrder::kRuns / kDimSplit;  // V runs of a warp
  static constexpr int kNTiles = kRuns * VOrder::kLaneChannels;
  static constexpr int kQueryParts =
      ops::kQueryParts<spec::QueryElement, spec::ScoreOperand,
                       KSide::kChannelScale>;
  // Whether what heavy weights lose when they are narrowed goes into a second
  // product, see ops/softmax.cuh.
  static constexpr bool kTwoPartWeights =
      formats::kSameElement<spec::ValueOperand, formats::Bf16Operand>;
  static_assert(!kTwoPartWeights ||
                (!spec::kValueWeightScaled && !kWeightBlocks));
  // Keys are seen one by one, not only as a range.
  static constexpr bool kPicked = spec::kCustomMask || spec::kSparseBlock > 0;
  // Whether a row's uniform factor is left out of its scores, where nothing
  // follows it, and is their unit instead.
  static constexpr bool kUniformInUnit = spec::kUniformLast && !ops::kScoreBias;
  // Whether weights can be worked out without looking for the largest score
  // first.
  static constexpr bool kOnePass =
      spec::kImages && kUniformInUnit && !kPicked && !kTwoPartWeights;
  // K's row terms in images take in the uniform factor, in base 2: a row's unit
  // is then what its query was multiplied by, and nearly always 1.
  static constexpr bool kUniformInTerms = kOnePass && KSide::kRowScale;
  // V's images take in the factors of weights.
  static constexpr bool kFoldsValues = kOnePass && spec::kValueWeightScaled;
  // Keys whose scores a warp holds at once: fewer where the output and the
  // query take most of the registers, the sooner if features take some.
  static constexpr bool kFeatures = kPicked || ops::kScoreBias;
  static constexpr int kStepKeys =
      spec::kBlockN % 32 == 0 &&
              (kMTiles == 1 ? !kFeatures || kNTiles <= 16 : kNTiles <= 12) &&
              (kQueryParts == 1 || kNTiles < 32)
          ? 32
          : 16;

  // Whether addresses of copies, kept from tile to tile, would not fit the
  // registers: beside a full output and the terms of a format, or features.
  static constexpr bool kShort =
      kFeatures ||
      (kMTiles * kNTiles >= 32 &&
       (KSide::kRowMinimum || VSide::kRowMinimum || KSide::kBlock > 0 ||
        VSide::kBlock > 0 || spec::kHeadDim < spec::kValueDim));

  static constexpr int kQueryBytes =
      kQueryParts * spec::kBlockM * spec::kHeadDim * 2;
  static constexpr int kGroups = spec::kBlockN / ops::kGroupKeys;

  static_assert(spec::kWarps % kDimSplit == 0);
  static_assert(kWarpRows == 16 || kWarpRows == 32);
  static_assert(VOrder::kRuns % kDimSplit == 0);
  static_assert(spec::kBlockN % ops::kGroupKeys == 0);
};

// This thread holds rows first_row + 8 * i, i = 0 .. kRows - 1, of its
// sequence. Which keys a row sees is worked out again where a mask is needed:
// few tiles need one, and registers are short.
struct ExtendState {
  using Shape = ExtendShape;
  static constexpr int kRows = 2 * Shape::kMTiles;
  int first_row;
  float uniform[kRows];  // kUniformInUnit: the row's unit in base 2
  float q_sum[kRows];    // of the row's channels
  ops::SoftmaxRow softmax[kRows];
  float heavy2[kRows];  // kTwoPartWeights only; see ops::HeavyScore2
  static constexpr int kBlocks = Shape::kWeightBlocks ? Shape::kRuns : 1;
  ops::BlockReference blocks[kRows][kBlocks];
  float out[Shape::kMTiles][Shape::kNTiles][4];

  // What row i's scores are multiplied by to be logarithms of base 2. Above 0.
  __device__ __forceinline__ float Unit2(int i) const {
    return Shape::kUniformInUnit ? uniform[i] : ops::kLog2E;
  }
  // Sets what all scores of row i are multiplied by, not below 0: `factor` of
  // the row and `shared` by all. As a unit it is not 0: a hidden key's score is
  // -inf.
  __device__ __forceinline__ void SetUniform(int i, float factor,
                                             float shared) {
    uniform[i] = Shape::kUniformInTerms ? factor : factor * shared;
    if constexpr (Shape::kUniformInUnit && !Shape::kUniformInTerms) {
      uniform[i] *= ops::kLog2E;
      if (uniform[i] == 0) uniform[i] = 0x1p-149f;
    }
  }
};

// `x` again: a shuffle stays in its place, and what follows from its result is
// not worked out ahead of it and kept. All lanes.
__device__ __forceinline__ int Anew(int x) { return arch::ShuffleXor(x, 0); }

}  // namespace kvforge::kernels

#endif  // KVFORGE_TEMPLATES_KERNELS_EXTEND_SHAPE_CUH_
