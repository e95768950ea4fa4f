// Faults of scales and numbers. Numbers are those of docs/cases.md.
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/formats/codec.h"
#include "compiler/tile/tile_selector.h"
#include "kernels/extend.h"
#include "kernels/gather.h"
#include "kernels/merge.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

CaseOptions Small(const std::string& format, std::vector<int> q_lens,
                  std::vector<int> kv_lens) {
  CaseOptions options;
  options.name = format;
  options.format = format;
  options.head_dim = 64;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.page_size = 16;
  options.q_lens = std::move(q_lens);
  options.kv_lens = std::move(kv_lens);
  return options;
}

float Zero(int64_t, int, int) { return 0; }

// A case of one head and one token a row of `rows`, the rest of a row being
// `fill`; stored, the codes compared with the host codec by CheckStored.
AttentionCase StoredRows(const std::string& format,
                         const std::vector<std::vector<float>>& rows,
                         float scale = 1, DType type = DType::kF32,
                         float fill = 0) {
  CaseOptions options = Small(format, {1}, {static_cast<int>(rows.size())});
  options.num_q_heads = options.num_kv_heads = 1;
  options.source_type = type;
  options.k_scale = options.v_scale = scale;
  options.k = options.v = [rows, fill](int64_t token, int, int d) {
    return d < static_cast<int>(rows[token].size()) ? rows[token][d] : fill;
  };
  Bench bench(Generated(options));
  bench.Store();
  return std::move(bench.problem);
}

// Code `index` of row `token`.
int E4m3Code(const AttentionCase& problem, int64_t token, int index) {
  return problem.k.codes[token * 64 + index];
}
int E2m1Code(const AttentionCase& problem, int64_t token, int index) {
  return problem.k.codes[token * 32 + index / 2] >> (index % 2 * 4) & 0xF;
}

TEST(Case25, GivenScalesReachEveryEntry) {
  CaseOptions options = Small("e4m3_tensor", {1, 3}, {40, 21});
  options.k_scale = 0.25f;
  options.v_scale = 0.5f;
  Bench bench(Generated(options));
  bench.Store();
  AttentionArgs args = bench.target->AttentionArguments();
  bench.ExpectAllRight(args);
  // From device memory instead of the arguments.
  const TargetBuffer scales = Uploaded<float>({0.25f, 0.5f});
  args.k.scale_ptr = scales.as<const float>();
  args.v.scale_ptr = scales.as<const float>() + 1;
  args.k.scale = args.v.scale = 77;
  bench.ExpectAllRight(args);
  // Without LSE.
  args.lse = nullptr;
  KVFORGE_EXPECT_OK(
      bench.target->Extend(*bench.Kernel(KernelKind::kExtend), args));
  const std::vector<uint8_t> with_null = *bench.target->Out();
  args.lse = bench.target->AttentionArguments().lse;
  KVFORGE_EXPECT_OK(
      bench.target->Extend(*bench.Kernel(KernelKind::kExtend), args));
  EXPECT_EQ(with_null, *bench.target->Out());
}

TEST(Case26, StoreDividesByTheGivenScale) {
  const AttentionCase problem = StoredRows("e4m3_tensor", {{448.0f}}, 2);
  EXPECT_EQ(E4m3Code(problem, 0, 0), 0x76);  // 224
}

TEST(Case27, RowsAndBlocksOfZeros) {
  std::vector<float> half(64, 1.5f);
  std::fill(half.begin(), half.begin() + 16, 0.0f);
  const std::vector<std::vector<float>> rows = {
      {}, half, std::vector<float>(64, -0.0f)};
  const AttentionCase e4m3 = StoredRows("e4m3_row", rows);
  EXPECT_EQ(E4m3Code(e4m3, 0, 5), 0);
  EXPECT_EQ(E4m3Code(e4m3, 2, 5), 0x80);
  EXPECT_TRUE(std::isfinite(e4m3.k.row_scale[0]));
  const AttentionCase nvfp4 = StoredRows("nvfp4_row", rows);
  EXPECT_EQ(E2m1Code(nvfp4, 1, 3), 0);
  EXPECT_NE(E2m1Code(nvfp4, 1, 16), 0);
  EXPECT_EQ(nvfp4.k.block_scale[4], 0);  // row 1, block 0
  for (const char* format : {"e4m3_row", "nvfp4_row"}) {
    CaseOptions options = Small(format, {1}, {5});
    options.k = options.v = Zero;
    Bench bench(Generated(options));
    bench.Store();
    KVFORGE_EXPECT_OK(bench.target->Extend(*bench.Kernel(KernelKind::kExtend),
                                           bench.target->AttentionArguments()));
    const std::vector<uint8_t> out = *bench.target->Out();
    for (uint8_t byte : out) EXPECT_EQ(byte & 0x7F, 0);
  }
}

TEST(Case28, OneRoundingFromF32) {
  const float above = std::nextafter(1.0625f, 2.0f);
  const AttentionCase problem = StoredRows(
      "e4m3_tensor", {{1.0625f, above, 256, 288, 300, 416, 448, 464, 1e30f}});
  const int codes[] = {0x38, 0x39, 0x78, 0x79, 0x79, 0x7D, 0x7E, 0x7E, 0x7E};
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(E4m3Code(problem, 0, i), codes[i]) << i;
  }
}

TEST(Case29, TiesOfE2m1GoToEven) {
  // amax 2688 makes the row scale 1 and the block scale 448, exactly.
  const AttentionCase problem = StoredRows(
      "nvfp4_row",
      {{2688, 0.25f * 448, 1.25f * 448, 2.5f * 448, 5 * 448, -0.25f * 448}});
  EXPECT_EQ(problem.k.row_scale[0], 1);
  const int codes[] = {7, 0, 2, 4, 6, 8};  // 6, 0, 1, 2, 4, -0
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(E2m1Code(problem, 0, i), codes[i]) << i;
  }
}

TEST(Case30, BlockTooSmallForItsScale) {
  std::vector<float> row(64, 1e-6f);
  for (int d = 0; d < 16; ++d) row[d] = 1000;
  const AttentionCase problem = StoredRows("nvfp4_row", {row});
  for (int d = 16; d < 64; ++d) EXPECT_EQ(E2m1Code(problem, 0, d), 0);
  EXPECT_EQ(problem.k.block_scale[1], 0);
}

TEST(Case31, ValueScalesAMillionApart) {
  for (const char* format : {"e4m3_row", "nvfp4_row"}) {
    for (float small : {1e-6f, 1e6f}) {
      CaseOptions options = Small(format, {1, 2}, {40, 33});
      options.v = [small](int64_t token, int, int d) {
        return (token % 7 == 3 ? small : 1.0f) * (1 + d % 5);
      };
      ExpectCaseRight(options, 0, 1);
      // All weight on the token of the small scale.
      options.causal = false;
      options.k = [](int64_t token, int, int) {
        return token % 7 == 3 ? 4.0f : -4.0f;
      };
      options.q = [](int64_t, int, int) { return 1.0f; };
      ExpectCaseRight(options, 0, 1);
    }
  }
}

// The scores are flat, so only the scales of V ask for another reference.
TEST(Case31, LargeValueScalesComeLast) {
  for (const char* format : {"e4m3_row", "nvfp4_row"}) {
    CaseOptions options = Small(format, {1}, {200});
    options.q = Zero;
    options.v = [](int64_t token, int, int d) {
      return (token < 100 ? 1e-3f : 1e3f) * (1 + d % 5);
    };
    ExpectCaseRight(options, 0, 1);
  }
}

// Every group of keys passes the running maximum by far: what was summed and
// accumulated before must be scaled down each time.
TEST(OnlineSoftmax, RisingScores) {
  for (const char* format : {"e4m3_row", "bf16"}) {
    CaseOptions options = Small(format, {1, 3}, {150, 70});
    options.q = [](int64_t, int, int) { return 1.0f; };
    options.k = [](int64_t token, int, int) {
      return static_cast<float>(token / 16) * 0.75f;
    };
    ExpectCaseRight(options, 0, 2);
    // Flat in the end: weights of the last groups share the result.
    options.k = [](int64_t token, int, int) {
      return token < 48 ? static_cast<float>(token / 16) * 0.5f : 1.25f;
    };
    ExpectCaseRight(options, 0, 2);
  }
}

TEST(OnlineSoftmax, NegativeScale) {
  for (const char* format : {"bf16", "e4m3_row", "int4_row", "mxfp8"}) {
    CaseOptions options = Small(format, {1, 30}, {60, 128});
    options.sm_scale = -0.25f;
    ExpectCaseRight(options);
  }
}

// Weights are narrowed to bf16, 8 bits, and few keys decide a row: rounded
// once, a row in a thousand would be off by 0.9 of its bound and more.
TEST(OnlineSoftmax, NarrowingToBf16LosesLittle) {
  for (int seed = 1; seed <= 4; ++seed) {
    CaseOptions options = Small("bf16", {17, 40, 30}, {60, 128, 250});
    options.causal = false;
    options.sm_scale = 0.25f;  // standard deviation of the scores: 2
    options.out_type = DType::kF32;
    options.seed = seed;
    const AttentionCase problem = Generated(options);
    if (ListingSpecs()) {
      PrepareCase(problem, 0, 1);
      continue;
    }
    for (const KernelResult& result :
         RunCase(TestEngine(), problem, 0, 1).results) {
      KVFORGE_EXPECT_OK(result.status);
      EXPECT_LT(result.errors.out_ratio, 0.6)
          << result.kernel << ", seed " << seed;
    }
  }
}

// All tokens weigh the same, so that a weight's rounding error is the same in
// all of them: the part of a value that is its row's minimum must have it too.
TEST(Int4, EqualWeightsLeaveNoBias) {
  CaseOptions options = Small("int4_row", {1, 2}, {900, 333});
  options.q = Zero;
  // Every row holds all values of one of two ranges, so that there are two
  // scales; the weights of the smaller one are rounded.
  options.v = [](int64_t token, int head, int d) {
    const int step =
        static_cast<int>((token * 31 + head * 7 + d * 5) % 61) - 30;
    return static_cast<float>(step) / (token % 2 == 0 ? 10.0f : 12.0f);
  };
  options.causal = false;
  options.out_type = DType::kF32;
  ExpectCaseRight(options);
}

// Rows of one value have the smallest scale: their weights vanish beside those
// of other rows, and all of the value is the minimum.
TEST(Int4, ConstantRowsBesideOthers) {
  CaseOptions options = Small("int4_row", {1, 12}, {100, 45});
  options.out_type = DType::kF32;
  options.v = [](int64_t token, int head, int d) {
    const float other = static_cast<float>((token * 31 + head * 7 + d) % 13);
    return token % 3 == 0 ? other - 6.0f : 5.0f;
  };
  options.k = [](int64_t token, int head, int d) {
    const float other = static_cast<float>((token * 17 + head * 3 + d) % 11);
    return token % 4 == 0 ? 0.25f : (other - 5.0f) / 4;
  };
  ExpectCaseRight(options);
}

TEST(Int4, KeysFarFromZero) {
  CaseOptions options = Small("int4_row", {1, 12}, {100, 45});
  options.k = [](int64_t token, int head, int d) {
    return 3.0f + static_cast<float>((token * 17 + head * 3 + d * 5) % 11) / 8;
  };
  ExpectCaseRight(options);
}

// Each group of keys raises the references that the minima are summed under.
TEST(Int4, RisingScores) {
  CaseOptions options = Small("int4_row", {1, 12}, {100, 80});
  options.sm_scale = 1;
  options.q = [](int64_t, int, int d) { return d == 0 ? 1.0f : 0.0f; };
  options.k = [](int64_t token, int, int d) {
    return d == 0 ? static_cast<float>(token % 100) / 2 : 0.0f;
  };
  options.v = [](int64_t token, int head, int d) {
    return static_cast<float>(token % 7) - 3.0f +
           static_cast<float>((head + d) % 5) / 8;
  };
  ExpectCaseRight(options);
}

TEST(Int4, ZeroRowsGiveZero) {
  CaseOptions options = Small("int4_row", {1, 3}, {40, 5});
  options.v = Zero;
  options.out_type = DType::kF32;
  ExpectCaseRight(options);
}

// Scales of blocks as far apart as f32 allows, within a row and between tokens.
TEST(Mx, ScalesOfBlocksSpread) {
  for (const char* format : {"mxfp8", "mxfp4"}) {
    for (int spread : {0, 1, 2}) {
      CaseOptions options = Small(format, {1, 12}, {100, 45});
      options.name = absl::StrCat(format, " spread ", spread);
      options.head_dim = 96;
      options.out_type = DType::kF32;
      options.source_type = DType::kF32;
      options.v = [=](int64_t token, int head, int d) {
        const float x =
            static_cast<float>((token * 31 + head * 7 + d * 5) % 13) - 5.5f;
        const int exponent = spread == 0 ? 40 * (d / 32 - 1)  // blocks
                             : spread == 1
                                 ? static_cast<int>(token / 16) * 9  // tokens
                                 : -118;                             // near 0
        return std::ldexp(x, exponent);
      };
      ExpectCaseRight(options, spread, 1);
    }
  }
}

// All blocks of a key have a say, whatever their scales.
TEST(Mx, KeysOfSpreadBlocks) {
  for (const char* format : {"mxfp8", "mxfp4"}) {
    CaseOptions options = Small(format, {1, 12}, {100, 45});
    options.head_dim = 96;
    options.source_type = options.query_type = DType::kF32;
    options.k = [](int64_t token, int head, int d) {
      const float x =
          static_cast<float>((token * 31 + head * 7 + d * 5) % 13) - 5.5f;
      return std::ldexp(x, 5 * (d / 32 - 1));
    };
    options.q = [](int64_t token, int head, int d) {
      const float x = static_cast<float>((token * 3 + head * 5 + d) % 7) - 3.0f;
      return std::ldexp(x, -5 * (d / 32 - 1)) / 8;
    };
    ExpectCaseRight(options);
  }
}

TEST(Case32, LongUniformSumDoesNotDrift) {
  CaseOptions options = Small("e4m3_row", {1}, {131072});
  options.num_q_heads = options.num_kv_heads = 1;
  options.q = Zero;
  options.v = [](int64_t, int, int) { return 1.75f; };
  options.out_type = DType::kF32;
  ExpectCaseRight(options, 0, 1);
}

TEST(Case33, OneKeyFarBelowTheOthersOfNone) {
  CaseOptions options = Small("bf16", {1}, {1});
  options.query_type = options.out_type = DType::kF32;
  options.q = [](int64_t, int, int) { return 1.0f; };
  options.k = [](int64_t, int, int) { return -1.0f; };
  options.sm_scale = 66855.9f / 64;
  Bench bench(Generated(options));
  EXPECT_NEAR(bench.problem.lse[0], -66855.9, 0.01);
  bench.Store();
  bench.ExpectAllRight(bench.target->AttentionArguments());
}

TEST(Case34, MergeOfPrefixAndSuffix) {
  CaseOptions options = Small("e4m3_row", {1}, {3136});
  options.num_q_heads = options.num_kv_heads = 1;
  options.out_type = DType::kF32;
  Bench bench(Generated(options));
  bench.Store();
  AttentionArgs args = bench.target->AttentionArguments();
  const auto extend = bench.Kernel(KernelKind::kExtend);
  const TargetBuffer partial = Allocated(2 * 64 * 4);
  const TargetBuffer partial_lse = Allocated(2 * 4);
  // 3072 tokens are 192 whole pages; the suffix has its own part of the table.
  const TargetBuffer lens = Uploaded<int>({3072, 64});
  args.kv_lens = lens.as<const int>();
  args.out = partial.as<unsigned char>();
  args.lse = partial_lse.as<float>();
  KVFORGE_EXPECT_OK(RunExtend(*extend, {args, 1}, nullptr));
  args.kv_lens = lens.as<const int>() + 1;
  args.page_table += 192;
  args.out = partial.as<unsigned char>() + 64 * 4;
  args.lse = partial_lse.as<float>() + 1;
  KVFORGE_EXPECT_OK(RunExtend(*extend, {args, 1}, nullptr));
  MergeArgs merge = {};
  const AttentionArgs whole = bench.target->AttentionArguments();
  merge.partial_out = partial.as<float>();
  merge.partial_lse = partial_lse.as<float>();
  merge.out = whole.out;
  merge.out_row_stride = merge.out_head_stride = 256;
  merge.lse = whole.lse;
  merge.lse_row_stride = 1;
  merge.splits = 2;
  merge.rows = merge.heads = 1;
  KVFORGE_EXPECT_OK(RunMerge(*Prepared("merge/d64/f32"), merge, nullptr));
  RecordExecuted(KernelKind::kMerge, kFormats[0], kFormats[0]);
  KVFORGE_EXPECT_OK(SynchronizeTarget(TestEngine(), nullptr));
  bench.ExpectRight("merge");
}

TEST(Case35, ColdPrefillAndExtendOverThePrefixAgree) {
  CaseOptions options = Small("e4m3_row", {40}, {40});
  options.out_type = DType::kF32;
  Bench cold(Generated(options));
  cold.Store();
  const auto kernel = cold.Kernel(KernelKind::kExtend);
  AttentionArgs args = cold.target->AttentionArguments();
  KVFORGE_EXPECT_OK(cold.target->Extend(*kernel, args));
  cold.ExpectRight("cold prefill");
  const std::vector<uint8_t> whole = *cold.target->Out();
  // The last 16 rows again, over a cache that holds what came before.
  const TargetBuffer q_indptr = Uploaded<int>({0, 16});
  args.q += 24 * args.q_token_stride;
  args.q_indptr = q_indptr.as<const int>();
  args.total_q = 16;
  KVFORGE_EXPECT_OK(cold.target->Extend(*kernel, args));
  const std::vector<uint8_t> chunk = *cold.target->Out();
  for (size_t i = 0; i < 16 * 4 * 64; ++i) {
    float a, b;
    std::memcpy(&a, whole.data() + (24 * 4 * 64 + i) * 4, 4);
    std::memcpy(&b, chunk.data() + i * 4, 4);
    ASSERT_NEAR(a, b, 2e-3 * (1 + std::abs(a))) << i;
  }
}

TEST(Case36, ConstantValuesAndUniformScores) {
  for (const KvFormat& format : kFormats) {
    if (!format.served) continue;
    CaseOptions options = Small(std::string(format.name), {1, 2}, {100, 33});
    options.q = Zero;
    options.v = [](int64_t, int, int) { return 1.75f; };
    options.k_scale = 0.5f;
    options.v_scale = 0.25f;
    options.causal = false;
    Bench bench(Generated(options));
    bench.Store();
    for (int i = 0; i < 4; ++i) {
      EXPECT_FLOAT_EQ(bench.problem.lse[i], 4.6051702f);  // ln 100
    }
    bench.ExpectAllRight(bench.target->AttentionArguments());
  }
}

TEST(Case37, NanAndInfStayInTheirRows) {
  for (DType type : {DType::kF32, DType::kBf16}) {
    const std::vector<std::vector<float>> rows = {
        std::vector<float>(64, 1.0f), {1, kNan, 3}, {kInf, 2, -kInf}, {7}};
    const AttentionCase e4m3 = StoredRows("e4m3_row", rows, 1, type);
    EXPECT_TRUE(std::isnan(e4m3.k.row_scale[1]));
    EXPECT_EQ(E4m3Code(e4m3, 1, 0), 0x7F);
    EXPECT_EQ(e4m3.k.row_scale[2], std::numeric_limits<float>::max() / 448.0f);
    EXPECT_EQ(E4m3Code(e4m3, 2, 0), 0x7E);
    EXPECT_EQ(E4m3Code(e4m3, 2, 2), 0xFE);
    EXPECT_EQ(E4m3Code(e4m3, 3, 0), 0x7E);
    const AttentionCase nvfp4 = StoredRows("nvfp4_row", rows, 1, type);
    EXPECT_TRUE(std::isnan(nvfp4.k.row_scale[1]));
    EXPECT_EQ(E2m1Code(nvfp4, 1, 0), 0);
    EXPECT_EQ(nvfp4.k.block_scale[4], 0x7F);
  }
}

// The engines whose texts decode e4m3 in different ways: by bit placement and
// by the hardware's conversion. On a GPU, its own.
std::vector<Engine*> EnginesOfEveryDecode() {
  if (OnCuda() || ListingSpecs()) return {&TestEngine()};
  static const std::vector<std::unique_ptr<Engine>> engines = [] {
    std::vector<std::unique_ptr<Engine>> created;
    for (const char* gpu : {"sm_80", "sm_89"}) {
      EngineOptions options = TestEngine().options();
      options.gpu = gpu;
      absl::StatusOr<std::unique_ptr<Engine>> engine =
          Engine::Create(std::move(options));
      EXPECT_TRUE(engine.ok()) << engine.status();
      created.push_back(*std::move(engine));
    }
    return created;
  }();
  return {engines[0].get(), engines[1].get()};
}

// A cache that holds every code once, read back as f32: codes 0x7F and 0xFF are
// NaN, where placed bits alone would be 480.
TEST(Case38, EveryCodeDecodesAsOnTheHost) {
  constexpr int kRows = 4;
  std::vector<uint8_t> codes(kRows * 64);
  std::iota(codes.begin(), codes.end(), 0);
  const std::vector<long long> slots = {0, 1, 2, 3};
  for (Engine* engine : EnginesOfEveryDecode()) {
    const auto spec = ParseSpec("gather/e4m3_tensor/d64/g1/page16/f32");
    ASSERT_TRUE(spec.ok()) << spec.status();
    const auto gather = engine->Prepare(*spec);
    ASSERT_TRUE(gather.ok()) << gather.status();
    const TargetBuffer cache =
        *TargetBuffer::FromHost(*engine, codes.data(), codes.size());
    const TargetBuffer slot_buffer =
        *TargetBuffer::FromHost(*engine, slots.data(), slots.size() * 8);
    const TargetBuffer out =
        *TargetBuffer::Allocate(*engine, 2 * codes.size() * 4);
    GatherArgs args = {};
    args.k.codes = {cache.as<unsigned char>(), 16 * 64, 64, 64};
    args.k.scale = 0.5f;
    args.v = args.k;
    args.num_slots = 16;
    args.num_kv_heads = 1;
    args.num_rows = kRows;
    args.slots = slot_buffer.as<const long long>();
    args.k_out = {out.as<unsigned char>(), 64 * 4, 64 * 4};
    args.v_out = {out.as<unsigned char>() + codes.size() * 4, 64 * 4, 64 * 4};
    KVFORGE_EXPECT_OK(RunGather(**gather, args, nullptr));
    KVFORGE_EXPECT_OK(SynchronizeTarget(*engine, nullptr));
    const std::vector<float> values = Downloaded<float>(out);
    for (size_t i = 0; i < values.size(); ++i) {
      const int code = static_cast<int>(i % 256);
      const float expected = DecodeE4m3(static_cast<uint8_t>(code)) * 0.5f;
      if ((code & 0x7F) == 0x7F) {
        EXPECT_TRUE(std::isnan(expected));
        EXPECT_TRUE(std::isnan(values[i])) << engine->gpu().name << " " << i;
      } else {
        EXPECT_EQ(values[i], expected) << engine->gpu().name << " " << i;
      }
    }
  }
}

// The same codes on their way into a dot.
TEST(Case38, NanCodesReachTheOutput) {
  CaseOptions options = Small("e4m3_tensor", {1}, {40});
  options.v = [](int64_t token, int, int d) {
    return token == 7 && d == 5 ? kNan : 0.5f;
  };
  const AttentionCase values = Generated(options);
  EXPECT_TRUE(std::isnan(values.out[5]));
  EXPECT_EQ(values.out[4], values.out[6]);
  options.v = nullptr;
  options.k = [](int64_t token, int head, int d) {
    return token == 7 && head == 1 && d == 5 ? kNan : 0.5f;
  };
  const AttentionCase keys = Generated(options);
  EXPECT_TRUE(std::isnan(keys.lse[3]));
  EXPECT_FALSE(std::isnan(keys.lse[0]));
  for (Engine* engine : EnginesOfEveryDecode()) {
    for (const AttentionCase* problem : {&values, &keys}) {
      if (ListingSpecs()) {
        PrepareCase(*problem, 0, 1);
        continue;
      }
      for (const KernelResult& result :
           RunCase(*engine, *problem, 0, 1).results) {
        EXPECT_TRUE(result.status.ok())
            << engine->gpu().name << " " << result.kernel << ": "
            << result.status;
      }
    }
  }
}

// Tiles other than the selector's: rows of one group spread over tiles.
TEST(Case39, GroupsThatAreNoPowerOfTwoInEveryTile) {
  struct GroupCase {
    int q_heads, kv_heads;
    bool sinks;
  };
  for (const GroupCase& c : {GroupCase{28, 4, false}, {10, 2, true}}) {
    CaseOptions options = Small("e4m3_row", {9, 1}, {40, 33});
    options.num_q_heads = c.q_heads;
    options.num_kv_heads = c.kv_heads;
    options.sinks = c.sinks;
    Bench bench(Generated(options));
    bench.Store();
    const AttentionArgs args = bench.target->AttentionArguments();
    std::set<int> heights;
    for (KernelKind kind : {KernelKind::kExtend, KernelKind::kDecode}) {
      const KernelSpec spec = *CaseSpec(bench.problem, kind, SlotOrder::kNhd);
      for (const TileCandidate& candidate :
           TileLadder(spec, TestEngine().gpu())) {
        // One tile of each height is enough; compiling takes long.
        if (!candidate.refused.empty()) continue;
        if (!heights.insert(candidate.tile.block_m).second) continue;
        const auto kernel = TestEngine().Prepare(spec, candidate.tile);
        ASSERT_TRUE(kernel.ok()) << kernel.status();
        if (kind == KernelKind::kExtend) {
          KVFORGE_EXPECT_OK(bench.target->Extend(**kernel, args));
        } else {
          KVFORGE_EXPECT_OK(bench.target->Decode(**kernel, args, 3));
        }
        bench.ExpectRight(candidate.tile.Text().c_str(), false);
      }
    }
    EXPECT_GE(heights.size(), 3u);
  }
}

TEST(Case45, ConstantsMakeKernelsOfTheirOwn) {
  Bench bench(Generated(Small("e4m3_row", {2}, {40})));
  bench.Store();
  const AttentionArgs args = bench.target->AttentionArguments();
  std::set<std::string> keys;
  std::set<std::vector<uint8_t>> results;
  const std::string base = "extend/e4m3_row/d64/g2/page16/bf16";
  for (const char* key :
       {"", "/window=4", "/window=5", "/softcap=2", "/softcap=1"}) {
    const auto kernel = Prepared(base + key);
    keys.insert(KeyDigest(kernel->key()));
    KVFORGE_EXPECT_OK(bench.target->Extend(*kernel, args));
    results.insert(*bench.target->Out());
  }
  EXPECT_EQ(keys.size(), 5u);
  EXPECT_EQ(results.size(), 5u);
  // The softmax scale is an argument: one kernel, two results.
  AttentionArgs scaled = args;
  scaled.sm_scale = args.sm_scale * 3;
  KVFORGE_EXPECT_OK(bench.target->Extend(*Prepared(base), scaled));
  results.insert(*bench.target->Out());
  EXPECT_EQ(results.size(), 6u);
}

}  // namespace
}  // namespace kvforge
