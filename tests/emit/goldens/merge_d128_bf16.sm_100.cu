// merge/d128/bf16 for sm_100, tile 4x0/1/4
#include "arch/select.cuh"
#include "formats/element.cuh"
#include "kernels/merge_args.h"

namespace kvforge::spec {

constexpr int kHeadDim = 128;
constexpr int kBlockM = 4;
constexpr int kWarps = 4;
using OutElement = formats::Bf16;

}  // namespace kvforge::spec

#include "kernels/merge.cuh"
