// Extend with compute=fp8: within its stated error on drawn data, and far
// closer where q or the weights are numbers that e4m3 has. GPUs without the
// products refuse it, and their tests are skipped.
#include <cmath>

#include "absl/status/status.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

class Fp8 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (TestEngine().gpu().has_warpgroup_products) return;
    GTEST_SKIP() << "compute=fp8 did not run: " << TestEngine().gpu().name
                 << " has no products of warpgroups";
  }
};

CaseOptions Options(std::vector<int> q_lens, std::vector<int> kv_lens) {
  CaseOptions options;
  options.name = "fp8";
  options.compute = Compute::kFp8;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.q_lens = std::move(q_lens);
  options.kv_lens = std::move(kv_lens);
  return options;
}

// Errors as parts of their bounds, the worst of the layouts.
ErrorReport Errors(const CaseOptions& options, int first_layout = 0) {
  const AttentionCase problem = Generated(options);
  ErrorReport worst;
  if (ListingSpecs()) {
    PrepareCase(problem, first_layout, 1);
    return worst;
  }
  const CaseRun run = RunCase(TestEngine(), problem, first_layout, 1);
  for (const KernelResult& result : run.results) {
    // A launch that failed has no errors; one past its bound has.
    EXPECT_TRUE(result.status.ok() || absl::IsDataLoss(result.status))
        << result.status;
    if (result.kernel == "store") continue;
    worst = result.errors;
    EXPECT_EQ(result.kernel, "extend");
    RecordExecuted(KernelKind::kExtend, *problem.k.format, *problem.v.format);
  }
  EXPECT_EQ(run.results.size(), 2u);  // store, extend
  return worst;
}

// 1.75 * 2^-i or its negative, or 0: with 1.75 in its row, e4m3 holds it.
float Held(int64_t seed, int d) {
  const int64_t drawn = (seed * 31 + d * 7 + seed * d) % 11;
  if (d == 0) return 1.75f;
  if (drawn == 10) return 0;
  return std::ldexp(drawn % 2 == 0 ? 1.75f : -1.75f,
                    -static_cast<int>(drawn / 2));
}

// Several tiles of keys, blocks of rows and a part of one, sequences without
// queries and without keys.
class Fp8Formats : public Fp8,
                   public ::testing::WithParamInterface<const char*> {};

TEST_P(Fp8Formats, KeepTheStatedError) {
  CaseOptions options = Options({70, 0, 3, 2}, {333, 20, 3, 0});
  options.format = GetParam();
  ExpectCaseRight(options, 1, 2);
}

TEST_P(Fp8Formats, BesideAnotherFormatOfV) {
  CaseOptions options = Options({33}, {150});
  options.format = GetParam();
  options.v_format = options.format == "e4m3_row" ? "e4m3_tensor" : "e4m3_row";
  ExpectCaseRight(options, 2, 1);
}

INSTANTIATE_TEST_SUITE_P(
    All, Fp8Formats, ::testing::Values("e4m3_row", "e4m3_tensor", "e4m3_head"),
    [](const auto& info) { return std::string(info.param); });

// What is left is what the products cut off: the scores are right.
TEST_F(Fp8, ScoresAreRightWhereQIsHeld) {
  CaseOptions options = Options({40, 5}, {300, 77});
  options.q = [](int64_t token, int head, int d) {
    return Held(token * 5 + head, d);
  };
  EXPECT_LT(Errors(options).lse_ratio, 0.05);
}

// All keys weigh alike and scales of V are powers of two: every weight is held,
// and each channel of each key counts where it belongs.
TEST_F(Fp8, OutputIsRightWhereWeightsAreHeld) {
  CaseOptions options = Options({40, 3}, {300, 140});
  options.q = [](int64_t, int, int) { return 0.0f; };
  options.v = [](int64_t token, int head, int d) {
    return std::ldexp(Held(token * 3 + head, d), static_cast<int>(token % 5));
  };
  options.out_type = DType::kF32;
  EXPECT_LT(Errors(options).out_ratio, 0.02);
  options.causal = false;
  EXPECT_LT(Errors(options, 3).out_ratio, 0.02);
}

// Sums of many tiles are f32: none is lost beside what came before.
TEST_F(Fp8, SumsOfTilesArePromoted) {
  CaseOptions options = Options({1}, {6000});
  options.num_q_heads = options.num_kv_heads = 1;
  options.q = [](int64_t, int, int) { return 0.0f; };
  options.v = [](int64_t, int, int) { return 1.75f; };
  options.out_type = DType::kF32;
  EXPECT_LT(Errors(options).out_ratio, 1e-4);
}

// A first key takes nearly all weight and adds nothing: the others decide the
// output, 2^-17 of it each.
TEST_F(Fp8, AHeavyKeyWithoutValuesCostsTheOthersNoDigits) {
  CaseOptions options = Options({20}, {300});
  options.causal = false;
  options.sm_scale = 1;
  options.q = [](int64_t, int, int d) { return d == 0 ? 1.75f : 0.0f; };
  options.k = [](int64_t token, int, int d) {
    return d > 0 ? 0.0f : token == 0 ? 7.0f : 0.21875f;
  };
  options.v = [](int64_t token, int head, int d) {
    return token == 0 ? 0.0f : 1 + Held(token + head, d);
  };
  options.out_type = DType::kF32;
  EXPECT_LT(Errors(options).out_ratio, 0.4);
}

// Two heavy keys whose values cancel: keys of later tiles, 2^-17 of them each,
// decide the output.
TEST_F(Fp8, ATileOfLightKeysKeepsItsDigits) {
  CaseOptions options = Options({20}, {300});
  options.causal = false;
  options.sm_scale = 1;
  options.q = [](int64_t, int, int d) { return d == 0 ? 1.75f : 0.0f; };
  options.k = [](int64_t token, int, int d) {
    return d > 0 ? 0.0f : token < 2 ? 7.0f : 0.21875f;
  };
  options.v = [](int64_t token, int head, int d) {
    if (token < 2) return token == 0 ? 1.75f : -1.75f;
    return token < 128 ? 0.0f : 1 + Held(token + head, d);
  };
  options.out_type = DType::kF32;
  EXPECT_LT(Errors(options).out_ratio, 0.4);
}

// Values of keys that a row does not see may be 2^20 times as large.
TEST_F(Fp8, KeysThatARowDoesNotSeeCostItNoDigits) {
  CaseOptions options = Options({100}, {100});
  options.q = [](int64_t, int, int) { return 0.0f; };
  options.v = [](int64_t token, int head, int d) {
    return std::ldexp(Held(token + head, d), token < 50 ? 0 : 20);
  };
  options.out_type = DType::kF32;
  EXPECT_LT(Errors(options).out_ratio, 0.02);
}

// Scores that grow by more than a reference is kept for.
TEST_F(Fp8, RaisesReferencesFromTileToTile) {
  CaseOptions options = Options({20}, {700});
  options.k = [](int64_t token, int, int d) {
    return d == 0 ? std::ldexp(1.75f, static_cast<int>(token / 128)) : 0.25f;
  };
  options.q = [](int64_t, int, int d) { return d == 0 ? 1.75f : 0.875f; };
  options.sm_scale = 4;
  ExpectCaseRight(options, 0, 1);
}

TEST_F(Fp8, KeepsToWindowMaskAndSoftcap) {
  CaseOptions options = Options({90, 5}, {260, 100});
  options.window = 70;
  options.softcap = 5;
  options.sinks = true;
  ExpectCaseRight(options, 0, 1);
  options.causal = false;
  options.alibi = true;
  ExpectCaseRight(options, 1, 1);
  options.alibi = options.sinks = false;
  options.window = 0;
  options.softcap = 0;
  options.mask = [](int b, int t, int j) {
    return t % 7 != 3 && (t * 131 + j * 71 + b * 17) % 7 < 3;
  };
  ExpectCaseRight(options, 0, 1);
}

// Who sees what, to the key: values are their tokens' numbers.
TEST_F(Fp8, SeesTheKeysOfItsRange) {
  for (const int window : {0, 4, 130}) {
    CaseOptions options = Options({150}, {290});
    options.window = window;
    options.q = [](int64_t, int, int) { return 0.0f; };
    options.v = [](int64_t token, int, int d) {
      return (token >> (d % 9) & 1) != 0 ? 1.75f : -0.875f;
    };
    options.out_type = DType::kF32;
    EXPECT_LT(Errors(options).out_ratio, 0.02) << "window " << window;
  }
}

// Pages that divide no tile, one token a page, and a group that divides no
// block of rows.
TEST_F(Fp8, TakesAnyPageAndGroup) {
  for (const int page_size : {1, 48}) {
    CaseOptions options = Options({30, 50}, {170, 65});
    options.page_size = page_size;
    options.num_q_heads = 14;
    ExpectCaseRight(options, page_size % 2, 1);
  }
}

TEST_F(Fp8, TakesQueriesAndOutputsOfAnyType) {
  for (const DType type : {DType::kF32, DType::kF16}) {
    CaseOptions options = Options({20}, {150});
    options.query_type = type;
    options.out_type = type == DType::kF32 ? DType::kF16 : DType::kF32;
    ExpectCaseRight(options, 0, 1);
  }
}

// Rows of q of any magnitude have a factor each.
TEST_F(Fp8, TakesRowsOfAnyMagnitude) {
  CaseOptions options = Options({40}, {150});
  options.query_type = DType::kF32;
  options.q = [](int64_t token, int head, int d) {
    return std::ldexp(Held(token + head, d),
                      static_cast<int>(token % 3) * 60 - 120);
  };
  EXPECT_LT(Errors(options).lse_ratio, 0.05);
}

// NaN in a key, in a query and in values; the last leaves the LSE as it is.
TEST_F(Fp8, ANanIsItsRowsAlone) {
  for (const char* side : {"q", "k", "v"}) {
    CaseOptions options = Options({8}, {140});
    const auto nan_at = [](int64_t at, uint32_t seed) {
      return [at, seed](int64_t token, int head, int d) {
        return token == at ? std::nanf("") : Held(token * seed + head, d);
      };
    };
    // Of queries the fourth, of keys the one that the last two see.
    if (*side == 'q') options.q = nan_at(3, 5);
    if (*side == 'k') options.k = nan_at(138, 3);
    if (*side == 'v') options.v = nan_at(138, 3);
    const AttentionCase problem = Generated(options);
    if (ListingSpecs()) {
      PrepareCase(problem, 0, 1);
      continue;
    }
    Bench bench(problem);
    bench.Store();
    KVFORGE_EXPECT_OK(bench.target->Extend(*bench.Kernel(KernelKind::kExtend),
                                           bench.target->AttentionArguments()));
    // Rows that do not see a NaN value may be NaN (kernels/extend.h).
    const absl::StatusOr<ErrorReport> errors = bench.target->Compare(true);
    ASSERT_TRUE(errors.ok()) << errors.status();
    EXPECT_LE(errors->lse_ratio, 1) << side << " " << errors->worst_lse;
    if (*side == 'v') continue;
    EXPECT_LE(errors->out_ratio, 1) << side << " " << errors->worst_out;
  }
}

}  // namespace
}  // namespace kvforge
