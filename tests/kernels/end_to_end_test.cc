// Store, extend, decode and merge on the CPU against the double-precision
// reference, over shapes. Every case runs in an NHD and an HND layout.
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

struct ShapeCase {
  const char* name;
  CaseOptions options;
  int first_layout = 0;
};

CaseOptions Options(const char* format, int head_dim, int q_heads, int kv_heads,
                    int page_size, std::vector<int> q_lens,
                    std::vector<int> kv_lens) {
  CaseOptions options;
  options.format = format;
  options.head_dim = head_dim;
  options.num_q_heads = q_heads;
  options.num_kv_heads = kv_heads;
  options.page_size = page_size;
  options.q_lens = std::move(q_lens);
  options.kv_lens = std::move(kv_lens);
  return options;
}

ShapeCase With(const char* name, CaseOptions options,
               const std::function<void(CaseOptions&)>& change,
               int first_layout = 0) {
  change(options);
  return {name, options, first_layout};
}

class Shapes : public ::testing::TestWithParam<ShapeCase> {};

TEST_P(Shapes, AllKernelsMatchTheReference) {
  CaseOptions options = GetParam().options;
  options.name = GetParam().name;
  ExpectCaseRight(options, GetParam().first_layout);
}

std::string NameOf(const ::testing::TestParamInfo<ShapeCase>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(
    Lengths, Shapes,
    ::testing::Values(
        ShapeCase{"NoSequence", Options("e4m3_row", 64, 4, 2, 16, {}, {})},
        ShapeCase{"NoTokens", Options("e4m3_row", 64, 4, 2, 16, {0}, {0})},
        ShapeCase{"OneToken", Options("e4m3_row", 64, 4, 2, 16, {1}, {1})},
        ShapeCase{"QueriesWithoutKeys",
                  Options("e4m3_row", 64, 4, 2, 16, {2, 1}, {0, 7})},
        ShapeCase{"KeysWithoutQueries",
                  Options("e4m3_row", 64, 4, 2, 16, {0, 1}, {9, 7})},
        ShapeCase{"Ragged", Options("e4m3_row", 64, 4, 2, 16, {1, 4, 2, 1},
                                    {300, 4, 65, 64})},
        ShapeCase{"OneBeyondATile",
                  Options("nvfp4_row", 64, 4, 2, 16, {65, 129}, {65, 129}), 2},
        ShapeCase{"ChunkOverAPrefix",
                  Options("e4m3_row", 64, 4, 2, 16, {40, 17}, {200, 17}), 4}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Pages, Shapes,
    ::testing::Values(
        ShapeCase{"Page1", Options("e4m3_row", 64, 4, 2, 1, {1, 2}, {33, 70})},
        ShapeCase{"Page16",
                  Options("nvfp4_row", 64, 4, 2, 16, {1, 2}, {33, 70}), 1},
        ShapeCase{"Page48",
                  Options("e4m3_row", 64, 4, 2, 48, {1, 2}, {48, 145}), 2},
        ShapeCase{"Page64", Options("bf16", 64, 4, 2, 64, {1, 2}, {63, 65}),
                  3}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Groups, Shapes,
    ::testing::Values(
        ShapeCase{"Group1", Options("e4m3_row", 64, 3, 3, 16, {1, 3}, {20, 9})},
        ShapeCase{"Group4", Options("e4m3_row", 64, 8, 2, 16, {1, 3}, {20, 9}),
                  1},
        ShapeCase{"Group5", Options("e4m3_row", 64, 10, 2, 16, {1, 3}, {20, 9}),
                  2},
        ShapeCase{"Group7",
                  Options("nvfp4_row", 64, 14, 2, 16, {1, 3}, {20, 9}), 3},
        ShapeCase{"Group24",
                  Options("e4m3_row", 64, 24, 1, 16, {1, 2}, {20, 9})}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    HeadDims, Shapes,
    ::testing::Values(
        ShapeCase{"D80", Options("e4m3_row", 80, 4, 2, 16, {1, 3}, {40, 5})},
        ShapeCase{"D80Nvfp4",
                  Options("nvfp4_row", 80, 4, 2, 16, {1, 3}, {40, 5}), 2},
        ShapeCase{"D96", Options("nvfp4_row", 96, 4, 2, 16, {1, 3}, {40, 5})},
        ShapeCase{"D112", Options("e4m3_row", 112, 4, 2, 16, {1, 3}, {40, 5})},
        ShapeCase{"D128", Options("f16", 128, 4, 2, 16, {1, 3}, {40, 5}), 1},
        ShapeCase{"D256", Options("e4m3_row", 256, 4, 2, 16, {1, 3}, {40, 5})},
        ShapeCase{"D512", Options("e4m3_row", 512, 4, 2, 16, {1, 3}, {40, 5})},
        With("D192AndV128", Options("e4m3_row", 192, 4, 2, 16, {1, 3}, {40, 5}),
             [](CaseOptions& o) { o.v_head_dim = 128; }),
        With(
            "D64AndV128", Options("e4m3_row", 64, 4, 2, 16, {1, 3}, {40, 5}),
            [](CaseOptions& o) { o.v_head_dim = 128; }, 1)),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Features, Shapes,
    ::testing::Values(
        With("Window", Options("e4m3_row", 64, 4, 2, 16, {1, 16}, {90, 50}),
             [](CaseOptions& o) { o.window = 24; }),
        With("WindowWithoutCausal",
             Options("e4m3_row", 64, 4, 2, 16, {1, 16}, {90, 50}),
             [](CaseOptions& o) {
               o.window = 24;
               o.causal = false;
             }),
        With(
            "Full", Options("e4m3_row", 64, 4, 2, 16, {5, 16}, {90, 16}),
            [](CaseOptions& o) { o.causal = false; }, 2),
        With("Softcap", Options("e4m3_row", 64, 4, 2, 16, {1, 3}, {90, 50}),
             [](CaseOptions& o) { o.softcap = 3.5f; }),
        With("SoftcapOfLargeScores",
             Options("e4m3_row", 64, 4, 2, 16, {1, 3}, {90, 50}),
             [](CaseOptions& o) {
               o.softcap = 30;
               o.sm_scale = 1000;
             }),
        With("Sinks", Options("nvfp4_row", 64, 4, 2, 16, {1, 3, 2}, {0, 90, 2}),
             [](CaseOptions& o) { o.sinks = true; }),
        With("Everything",
             Options("e4m3_tensor", 80, 10, 2, 16, {1, 3, 16}, {70, 33, 16}),
             [](CaseOptions& o) {
               o.sinks = true;
               o.softcap = 20;
               o.window = 9;
             })),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Types, Shapes,
    ::testing::Values(
        With("F32SourceAndQuery",
             Options("e4m3_row", 64, 4, 2, 16, {1, 3}, {40, 5}),
             [](CaseOptions& o) {
               o.source_type = o.query_type = o.out_type = DType::kF32;
             }),
        With("F16Everywhere",
             Options("nvfp4_row", 64, 4, 2, 16, {1, 3}, {40, 5}),
             [](CaseOptions& o) {
               o.source_type = o.query_type = o.out_type = DType::kF16;
             }),
        With("F32Out", Options("e4m3_row", 64, 4, 2, 16, {1, 3}, {40, 5}),
             [](CaseOptions& o) { o.out_type = DType::kF32; }),
        With("F32IntoBf16Cache", Options("bf16", 64, 4, 2, 16, {1, 3}, {40, 5}),
             [](CaseOptions& o) { o.source_type = DType::kF32; }),
        With("Bf16IntoF16Cache", Options("f16", 64, 4, 2, 16, {1, 3}, {40, 5}),
             [](CaseOptions& o) { o.out_type = DType::kF32; }),
        With("KeysE4m3ValuesNvfp4",
             Options("e4m3_row", 64, 4, 2, 16, {1, 3}, {40, 5}),
             [](CaseOptions& o) { o.v_format = "nvfp4_row"; }),
        With(
            "KeysNvfp4ValuesE4m3Tensor",
            Options("nvfp4_row", 64, 4, 2, 16, {1, 3}, {40, 5}),
            [](CaseOptions& o) { o.v_format = "e4m3_tensor"; }, 1),
        With("KeysBf16ValuesE4m3",
             Options("bf16", 64, 4, 2, 16, {1, 3}, {40, 5}),
             [](CaseOptions& o) { o.v_format = "e4m3_row"; })),
    NameOf);

// A kernel's shared memory is what its facts say: launches ask for that much,
// accesses past it fail, and the highest one comes within an alignment of it.
TEST(SharedMemory, HighWaterMarkMeetsTheModel) {
  KVFORGE_HOST_ONLY("the highest shared byte that a launch accessed");
  for (const char* format :
       {"bf16", "e4m3_row", "int4_row", "nvfp4_row", "mxfp4"}) {
    Bench bench(Generated(Options(format, 128, 8, 2, 16, {4}, {700})));
    bench.Store();
    bench.ExpectAllRight(bench.target->AttentionArguments(), 2);
    for (KernelKind kind : {KernelKind::kDecode, KernelKind::kExtend}) {
      const std::shared_ptr<const PreparedKernel> kernel = bench.Kernel(kind);
      const int bytes = kernel->facts().dynamic_shared_bytes;
      EXPECT_LE(kernel->shared_high_water(), bytes) << kernel->spec().Text();
      EXPECT_GT(kernel->shared_high_water(), bytes - 128)
          << kernel->spec().Text();
    }
  }
}

}  // namespace
}  // namespace kvforge
