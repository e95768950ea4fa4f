// store/int4_row/d128/g1/page16/bf16 for sm_100, tile 16x0/1/4
#include "arch/select.cuh"
#include "formats/element.cuh"
#include "formats/int4_row.cuh"
#include "formats/uint4.cuh"
#include "kernels/store_args.h"

namespace kvforge::spec {

constexpr int kHeadDim = 128;
constexpr int kValueDim = 128;
constexpr int kPageSize = 16;
constexpr int kBlockM = 16;
constexpr int kWarps = 4;
using SourceElement = formats::Bf16;
using KQuantizer = formats::Int4Row<formats::Uint4Encode>;
using VQuantizer = formats::Int4Row<formats::Uint4Encode>;

}  // namespace kvforge::spec

#include "kernels/store.cuh"
