// store/e4m3_channel/d128/g1/page16/bf16 for sm_80, tile 16x0/1/4
#include "arch/select.cuh"
#include "formats/element.cuh"
#include "formats/e4m3.cuh"
#include "formats/fp8_given.cuh"
#include "kernels/store_args.h"

namespace kvforge::spec {

constexpr int kHeadDim = 128;
constexpr int kValueDim = 128;
constexpr int kPageSize = 16;
constexpr int kBlockM = 16;
constexpr int kWarps = 4;
using SourceElement = formats::Bf16;
using KQuantizer = formats::Fp8Channel<formats::E4m3EncodePlaced>;
using VQuantizer = formats::Fp8Channel<formats::E4m3EncodePlaced>;

}  // namespace kvforge::spec

#include "kernels/store.cuh"
