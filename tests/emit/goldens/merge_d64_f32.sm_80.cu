// merge/d64/f32 for sm_80, tile 4x0/1/4
#include "arch/select.cuh"
#include "formats/element.cuh"
#include "kernels/merge_args.h"

namespace kvforge::spec {

constexpr int kHeadDim = 64;
constexpr int kBlockM = 4;
constexpr int kWarps = 4;
using OutElement = formats::F32;

}  // namespace kvforge::spec

#include "kernels/merge.cuh"
