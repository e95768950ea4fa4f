// Numbers at the ends of their ranges: NaN and infinity that a row sees, logits
// and scales far apart, windows and sinks that hide everything or nothing.
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/extend.h"
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
  options.q_lens = std::move(q_lens);
  options.kv_lens = std::move(kv_lens);
  return options;
}

// A value of [-1, 1) that looks drawn and is the same on every call.
float Value(int64_t token, int head, int d) {
  uint32_t bits = static_cast<uint32_t>(token) * 2654435761u + head * 40503u +
                  static_cast<uint32_t>(d) * 2246822519u;
  bits = (bits ^ (bits >> 15)) * 2246822519u;
  bits = (bits ^ (bits >> 13)) * 3266489917u;
  return static_cast<float>(bits ^ (bits >> 16)) * 0x1p-31f - 1.0f;
}

void ExpectRight(const CaseOptions& options) {
  Bench bench(Generated(options));
  bench.Store();
  bench.ExpectAllRight(bench.target->AttentionArguments());
}

TEST(NanQuery, MakesItsRowNanAndNotEmpty) {
  for (const char* format : {"bf16", "e4m3_row", "nvfp4_row"}) {
    CaseOptions options = Small(format, {2, 1}, {40, 300});
    options.q = [](int64_t token, int head, int d) {
      return token == 1 && d == 5 ? kNan : Value(token, head, d);
    };
    Bench bench(Generated(options));
    EXPECT_TRUE(std::isnan(bench.problem.lse[1 * 4]));
    EXPECT_FALSE(std::isnan(bench.problem.lse[2 * 4]));
    bench.Store();
    bench.ExpectAllRight(bench.target->AttentionArguments());
  }
}

TEST(NanQuery, InfinityMakesItsRowNan) {
  CaseOptions options = Small("e4m3_row", {2}, {40});
  options.q = [](int64_t token, int head, int d) {
    return token == 1 && d == 5 ? kInf : Value(token, head, d);
  };
  ExpectRight(options);
}

TEST(NanKey, ReachesTheRowsThatSeeItOnly) {
  for (const char* format : {"bf16", "e4m3_row", "nvfp4_row"}) {
    CaseOptions options = Small(format, {8}, {40});
    options.k = [](int64_t token, int head, int d) {
      return token == 36 && head == 1 ? kNan : Value(token, head, d);
    };
    ExpectRight(options);
  }
}

// A row that sees a NaN is NaN. Rows that do not share a tile with one that
// does are untouched: other sequences, and every row of a single-token decode.
TEST(NanValue, ReachesNoOtherSequence) {
  for (const char* format : {"bf16", "e4m3_row", "nvfp4_row"}) {
    CaseOptions options = Small(format, {1, 1, 1}, {40, 40, 40});
    options.window = 16;
    options.v = [](int64_t token, int head, int d) {
      // Of the second sequence: key 30 in its window, of the first: key 20 in
      // front of it.
      const bool bad = (token == 70 && head == 0) || token == 20;
      return bad ? kNan : Value(token, head, d);
    };
    ExpectRight(options);
  }
}

TEST(Query, ZerosSubnormalsAndHugeRows) {
  for (DType type : {DType::kBf16, DType::kF32}) {
    for (const char* format : {"bf16", "e4m3_row", "nvfp4_row"}) {
      CaseOptions options = Small(format, {5}, {40});
      options.query_type = type;
      options.out_type = DType::kF32;
      options.sm_scale = 1e-4f;
      options.q = [](int64_t token, int head, int d) {
        const float scales[] = {0.0f, 1e-40f, 1e-20f, 1.0f, 3e3f};
        return scales[token] * Value(token, head, d);
      };
      ExpectRight(options);
    }
  }
}

TEST(Scores, FarApart) {
  for (const char* format : {"f16", "e4m3_row", "nvfp4_row"}) {
    CaseOptions options = Small(format, {2}, {300});
    options.q = [](int64_t, int, int d) { return d == 0 ? 1.0f : 0.0f; };
    // Logits 0, -240, 480, ... powers of two: exact in every format.
    options.k = [](int64_t token, int, int d) {
      const float sign = token % 2 == 0 ? 1.0f : -1.0f;
      return d == 0 ? sign * std::ldexp(1.0f, static_cast<int>(token % 12)) : 0;
    };
    options.sm_scale = 16;
    ExpectRight(options);
  }
}

TEST(ValueScales, FromNothingToAMillion) {
  CaseOptions options = Small("e4m3_row", {4}, {200});
  options.v = [](int64_t token, int head, int d) {
    const float scales[] = {0.0f, 1e-30f, 1e-6f, 1.0f, 1e6f};
    return scales[token % 5] * Value(token, head, d);
  };
  ExpectRight(options);
  // Nothing but zeros: the exact result is 0.
  options.v = [](int64_t, int, int) { return 0.0f; };
  ExpectRight(options);
  options.v = [](int64_t token, int head, int d) {
    return 1e30f * Value(token, head, d);
  };
  options.out_type = DType::kF32;
  ExpectRight(options);
}

TEST(Window, OfTheLargestIntHidesNothing) {
  for (bool causal : {true, false}) {
    CaseOptions options = Small("e4m3_row", {10, 1}, {5, 40});
    options.window = std::numeric_limits<int>::max();
    options.causal = causal;
    ExpectRight(options);
  }
}

TEST(Window, OfOneKeyAndBeyondTheLength) {
  for (int window : {1, 40, 41, 1000}) {
    for (bool causal : {true, false}) {
      CaseOptions options = Small("e4m3_row", {3, 1}, {40, 1});
      options.window = window;
      options.causal = causal;
      ExpectRight(options);
    }
  }
}

TEST(Softcap, TinyAndHuge) {
  for (float softcap : {1e-30f, 1e-4f, 1e4f, 1e30f}) {
    CaseOptions options = Small("e4m3_row", {2}, {40});
    options.softcap = softcap;
    ExpectRight(options);
  }
}

// Uniform scores of 0 and V = 1.75 over n keys: out = 1.75 n / (n + e^sink).
TEST(Sinks, HugeAndMinusInfinity) {
  CaseOptions options = Small("e4m3_row", {1, 1}, {40, 0});
  options.sinks = true;
  options.out_type = DType::kF32;
  options.q = [](int64_t, int, int) { return 0.0f; };
  options.v = [](int64_t, int, int) { return 1.75f; };
  Bench bench(Generated(options));
  bench.Store();
  const float sinks[] = {1e4f, -1e4f, -kInf, 0.0f};
  const float lse[2][4] = {{1e4f, 3.6888795f, 3.6888795f, 3.7135721f},
                           {1e4f, -1e4f, -kInf, 0.0f}};
  const float out[] = {0.0f, 1.75f, 1.75f, 1.75f * 40 / 41};
  AttentionArgs args = bench.target->AttentionArguments();
  const TargetBuffer on_target = Uploaded(std::vector<float>(sinks, sinks + 4));
  args.sinks = on_target.as<const float>();
  for (int b = 0; b < 2; ++b) {
    for (int h = 0; h < 4; ++h) {
      bench.problem.lse[b * 4 + h] = lse[b][h];
      for (int d = 0; d < 64; ++d) {
        bench.problem.out[(b * 4 + h) * 64 + d] = b == 0 ? out[h] : 0;
      }
    }
  }
  bench.ExpectAllRight(args);
}

TEST(LongContext, DrawnValuesOver131072Keys) {
  CaseOptions options = Small("nvfp4_row", {1}, {131072});
  options.num_q_heads = options.num_kv_heads = 1;
  options.out_type = DType::kF32;
  options.sm_scale = 1;  // a peak over a long tail
  ExpectCaseRight(options, 0, 1);
}

// Rows in front of q_indptr[0] belong to no sequence.
TEST(QueryOffsets, ThatBeginPastZeroLeaveTheRowsBefore) {
  CaseOptions options = Small("e4m3_row", {70, 3}, {70, 40});
  Bench bench(Generated(options));
  bench.Store();
  AttentionArgs args = bench.target->AttentionArguments();
  args.batch = 1;
  args.q_indptr += 1;
  args.kv_lens += 1;
  args.page_table += args.page_table_stride;
  KVFORGE_EXPECT_OK(
      bench.target->Extend(*bench.Kernel(KernelKind::kExtend), args));
  const std::vector<uint8_t> out = *bench.target->Out();
  const size_t before = 70 * 4 * 64 * 2;
  for (size_t i = 0; i < before; ++i) ASSERT_EQ(out[i], kPoison) << i;
  // The sequence's own rows, as the error report of a case of its own.
  AttentionCase& problem = bench.problem;
  problem.out.erase(problem.out.begin(), problem.out.begin() + 70 * 4 * 64);
  problem.lse.erase(problem.lse.begin(), problem.lse.begin() + 70 * 4);
  problem.q_indptr = {0, 3};
  const std::vector<float> lse = *bench.target->Lse();
  const ErrorReport errors =
      CompareAttention(problem, absl::MakeConstSpan(out).subspan(before),
                       absl::MakeConstSpan(lse).subspan(70 * 4), true);
  EXPECT_TRUE(errors.ok()) << errors.worst_out << " " << errors.worst_lse;
}

// The text of a GPU with 99 KiB of shared memory a block.
TEST(Case43, WideHeadsRunOnAGpuOfLittleSharedMemory) {
  KVFORGE_HOST_ONLY("the text of sm_86");
  absl::StatusOr<EngineOptions> engine_options = EngineOptionsFromEnvironment();
  ASSERT_TRUE(engine_options.ok()) << engine_options.status();
  engine_options->gpu = "sm_86";
  const auto engine = Engine::Create(*std::move(engine_options));
  ASSERT_TRUE(engine.ok()) << engine.status();
  CaseOptions options = Small("e4m3_row", {1, 3}, {40, 21});
  options.head_dim = 512;
  const CaseRun run = RunCase(**engine, Generated(options), 0, 1);
  EXPECT_EQ(run.results.size(), 4u);
  for (const KernelResult& result : run.results) {
    EXPECT_TRUE(result.status.ok()) << result.kernel << ": " << result.status;
  }
}

}  // namespace
}  // namespace kvforge
