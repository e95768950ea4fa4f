// Users' score functions in decode (one and several splits) and extend: against
// the double-precision reference, whose function is written in C++ here, and
// bit for bit against the built-in soft cap and ALiBi written as functions.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string Text(const std::string& body) {
  return absl::StrCat(
      "func.func @f(%s: f32, %i: i32, %j: i32, %h: i32) -> f32 {\n", body,
      "\n}\n");
}

std::string Digest(const std::string& text) {
  const absl::StatusOr<std::string> digest =
      TestEngine().AddScoreFunction(text);
  EXPECT_TRUE(digest.ok()) << digest.status();
  return digest.value_or("");
}

CaseOptions Options(std::vector<int> q_lens, std::vector<int> kv_lens) {
  CaseOptions options;
  options.name =
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
  options.head_dim = 64;
  options.num_q_heads = 8;
  options.num_kv_heads = 2;
  options.q_lens = std::move(q_lens);
  options.kv_lens = std::move(kv_lens);
  return options;
}

CaseOptions RelativeBias(CaseOptions options) {
  options.score = Digest(Text(R"(
    %d = arith.subi %i, %j : i32
    %distance = math.absi %d : i32
    %tokens = arith.sitofp %distance : i32 to f32
    %slope = arith.constant -0.1 : f32
    %bias = arith.mulf %slope, %tokens : f32
    %biased = arith.addf %s, %bias : f32
    %reach = arith.constant 40 : i32
    %near = arith.cmpi sle, %distance, %reach : i32
    %hidden = arith.constant 0xFF800000 : f32
    %r = arith.select %near, %biased, %hidden : f32
    return %r : f32)"));
  options.score_function = [](double score, int i, int j, int) {
    return std::abs(i - j) <= 40 ? score - 0.1 * std::abs(i - j) : -kInfinity;
  };
  return options;
}

class ScoreFunctionFormats : public ::testing::TestWithParam<const char*> {};

TEST_P(ScoreFunctionFormats, RelativeBiasWithACutOff) {
  for (bool causal : {true, false}) {
    CaseOptions options =
        RelativeBias(Options({1, 4, 16, 3}, {37, 130, 300, 41}));
    options.format = GetParam();
    options.causal = causal;
    ExpectCaseRight(options);
  }
  CaseOptions prefill = RelativeBias(Options({70, 1}, {133, 64}));
  prefill.format = GetParam();
  ExpectCaseRight(prefill, 1);
}

INSTANTIATE_TEST_SUITE_P(All, ScoreFunctionFormats,
                         ::testing::Values("bf16", "e4m3_row", "int4_row",
                                           "mxfp8", "nvfp4_row"),
                         [](const auto& info) { return info.param; });

// What the README shows, past its reach of 1024 tokens.
TEST(ScoreFunction, TheExample) {
  std::ifstream stream(KVFORGE_TEST_DATA "/../examples/relative_bias.mlir");
  CaseOptions options = Options({1, 2}, {1100, 1040});
  options.format = "e4m3_row";
  options.score = Digest({std::istreambuf_iterator<char>(stream), {}});
  options.score_function = [](double score, int i, int j, int) {
    return std::abs(i - j) <= 1024 ? score - 0.1 * std::abs(i - j) : -kInfinity;
  };
  ExpectCaseRight(options, 0, 1);
}

// Beside all that hides keys, with groups that begin inside a tile.
TEST(ScoreFunction, MasksWindowsSelectionsAndSinks) {
  CaseOptions options = RelativeBias(Options({3, 16, 2}, {133, 17, 64}));
  options.num_q_heads = 14;
  options.window = 60;
  options.sinks = true;
  ExpectCaseRight(options, 2);
  options.mask = [](int, int t, int j) { return (3 * t + j) % 4 != 0; };
  ExpectCaseRight(options);
  options.mask = nullptr;
  options.sparse_block = 16;
  ExpectCaseRight(options, 1);
}

// q = 0: scores are the function alone, which tells positions and heads apart.
TEST(ScoreFunction, SeesPositionsAndTheQHead) {
  CaseOptions options = Options({2, 5}, {19, 70});
  options.q = [](int64_t, int, int) { return 0.0f; };
  options.score = Digest(Text(R"(
    %three = arith.constant 3 : i32
    %hundred = arith.constant 100 : i32
    %x = arith.muli %i, %three : i32
    %y = arith.subi %x, %j : i32
    %z = arith.muli %h, %hundred : i32
    %sum = arith.addi %y, %z : i32
    %f = arith.sitofp %sum : i32 to f32
    %unit = arith.constant 0.015625 : f32
    %r = arith.mulf %f, %unit : f32
    return %r : f32)"));
  options.score_function = [](double, int i, int j, int h) {
    return (3 * i - j + 100 * h) / 64.0;
  };
  ExpectCaseRight(options);
  options.num_q_heads = 10;  // group 5
  ExpectCaseRight(options, 1);
}

// -inf is a mask: without another key the output is 0, the LSE -inf or the
// sink.
TEST(ScoreFunction, MinusInfinityForEveryKeyHidesTheRow) {
  for (bool sinks : {false, true}) {
    CaseOptions options = Options({1, 16}, {30, 50});
    options.sinks = sinks;
    options.score = Digest(Text(R"(
      %one = arith.constant 1 : i32
      %odd = arith.andi %i, %one : i32
      %is_odd = arith.cmpi eq, %odd, %one : i32
      %hidden = arith.constant 0xFF800000 : f32
      %r = arith.select %is_odd, %hidden, %s : f32
      return %r : f32)"));
    options.score_function = [](double score, int i, int, int) {
      return i % 2 == 1 ? -kInfinity : score;
    };
    ExpectCaseRight(options);
  }
}

// What each kernel of a case writes: output bytes, then LSEs.
struct Written {
  std::vector<uint8_t> out;
  std::vector<float> lse;
  bool operator==(const Written&) const = default;
};

// Decode runs in `tile`: what merges with what decides the last bits.
std::vector<Written> RunAll(const CaseOptions& options, const Tile& tile) {
  Bench bench(Generated(options));
  bench.Store();
  const AttentionArgs args = bench.target->AttentionArguments();
  std::vector<Written> written;
  const auto take = [&](const absl::Status& status) {
    KVFORGE_EXPECT_OK(status);
    written.push_back({*bench.target->Out(), *bench.target->Lse()});
  };
  take(bench.target->Extend(*bench.Kernel(KernelKind::kExtend), args));
  const auto decoder = TestEngine().Prepare(bench.Decoder()->spec(), tile);
  KVFORGE_EXPECT_OK(decoder.status());
  for (int splits : {1, 3}) {
    take(bench.target->Decode(**decoder, args, splits));
  }
  return written;
}

void ExpectEqual(const CaseOptions& built_in, const CaseOptions& function) {
  const Tile tile = Bench(Generated(function)).Decoder()->tile();
  const std::vector<Written> expected = RunAll(built_in, tile);
  const std::vector<Written> actual = RunAll(function, tile);
  const char* kernels[] = {"extend", "decode", "decode with splits"};
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(expected[i] == actual[i]) << kernels[i];
    EXPECT_FALSE(actual[i].lse.empty());
  }
}

TEST(ScoreFunction, SoftcapWrittenAsOneIsTheBuiltInBitForBit) {
  CaseOptions built_in = Options({1, 4, 16}, {37, 130, 300});
  built_in.sm_scale = 1;  // scores on both sides of the cap
  CaseOptions function = built_in;
  built_in.softcap = 7;
  function.score = Digest(Text(R"(
    %cap = arith.constant 7.0 : f32
    %x = arith.divf %s, %cap : f32
    %t = math.tanh %x : f32
    %r = arith.mulf %cap, %t : f32
    return %r : f32)"));
  function.score_function = [](double score, int, int, int) {
    return 7 * std::tanh(score / 7);
  };
  ExpectCaseRight(function);
  ExpectEqual(built_in, function);
}

TEST(ScoreFunction, AlibiWrittenAsOneIsTheBuiltInBitForBit) {
  CaseOptions built_in = Options({1, 4, 16}, {37, 130, 300});
  CaseOptions function = built_in;
  built_in.alibi = true;  // slopes 2^-(h + 1) of 8 heads
  function.score = Digest(Text(R"(
    %minus_one = arith.constant -1 : i32
    %e = arith.subi %minus_one, %h : i32
    %exponent = arith.sitofp %e : i32 to f32
    %slope = math.exp2 %exponent : f32
    %d = arith.subi %j, %i : i32
    %distance = arith.sitofp %d : i32 to f32
    %r = math.fma %slope, %distance, %s : f32
    return %r : f32)"));
  function.score_function = [](double score, int i, int j, int h) {
    return score + std::exp2(-(h + 1)) * (j - i);
  };
  ExpectCaseRight(function);
  ExpectEqual(built_in, function);
}

// One function of every other operation, on scores of q.k and positions.
TEST(ScoreFunction, ArithmeticOfTheSubset) {
  CaseOptions options = Options({3, 7}, {60, 33});
  options.score = Digest(Text(R"(
    %half = arith.constant 0.5 : f32
    %one = arith.constant 1.0 : f32
    %two = arith.constant 2 : i32
    %seven = arith.constant 7 : i32
    %a = math.absf %s : f32
    %b = arith.addf %a, %one : f32
    %c = math.log %b : f32
    %d = math.exp %c : f32
    %e = math.sqrt %d : f32
    %f = math.rsqrt %b : f32
    %g = arith.mulf %e, %f : f32
    %h1 = arith.negf %g : f32
    %k = math.log2 %b : f32
    %l = math.floor %k : f32
    %m = math.ceil %k : f32
    %n = math.trunc %s : f32
    %o = math.roundeven %s : f32
    %p = math.copysign %half, %s : f32
    %q0 = arith.maximumf %n, %o : f32
    %q1 = arith.minimumf %q0, %p : f32
    %q2 = arith.maxnumf %q1, %l : f32
    %q3 = arith.minnumf %q2, %m : f32
    %q4 = arith.addf %q3, %h1 : f32
    %r0 = arith.divsi %j, %seven : i32
    %r1 = arith.remsi %i, %seven : i32
    %r2 = arith.maxsi %r0, %r1 : i32
    %r3 = arith.minsi %r2, %seven : i32
    %r4 = arith.shli %r3, %two : i32
    %r5 = arith.shrsi %r4, %two : i32
    %r6 = arith.xori %r5, %two : i32
    %r7 = arith.ori %r6, %h : i32
    %t0 = arith.fptosi %s : f32 to i32
    %t1 = arith.addi %t0, %r7 : i32
    %t2 = arith.sitofp %t1 : i32 to f32
    %u0 = arith.cmpf olt, %s, %half : f32
    %u1 = arith.cmpi ne, %r1, %two : i32
    %u2 = arith.andi %u0, %u1 : i1
    %u3 = arith.ori %u2, %u0 : i1
    %u4 = arith.xori %u3, %u1 : i1
    %u5 = arith.uitofp %u4 : i1 to f32
    %u6 = arith.extui %u3 : i1 to i32
    %u7 = arith.extsi %u2 : i1 to i32
    %u8 = arith.muli %u6, %u7 : i32
    %u9 = arith.sitofp %u8 : i32 to f32
    %v0 = arith.mulf %t2, %half : f32
    %v1 = arith.subf %q4, %v0 : f32
    %v2 = arith.addf %v1, %u5 : f32
    %v3 = arith.addf %v2, %u9 : f32
    return %v3 : f32)"));
  options.score_function = [](double s, int i, int j, int h) {
    const double b = std::abs(s) + 1;
    const double g = std::sqrt(std::exp(std::log(b))) / std::sqrt(b);
    const double k = std::log2(b);
    double q = std::max(std::trunc(s), std::nearbyint(s));
    q = std::min(q, std::copysign(0.5, s));
    q = std::max(q, std::floor(k));
    q = std::min(q, std::ceil(k)) - g;
    int r = std::min(std::max(j / 7, i % 7), 7);
    r = (((r << 2) >> 2) ^ 2) | h;
    const int t = static_cast<int>(s) + r;
    const bool u0 = s < 0.5;
    const bool u1 = i % 7 != 2;
    const bool u2 = u0 && u1;
    const bool u3 = u2 || u0;
    const bool u4 = u3 != u1;
    return q - 0.5 * t + u4 + (u3 ? 1 : 0) * (u2 ? -1 : 0);
  };
  // Multiples of 1/4 whose sums are exact, so that floors and casts of a score
  // agree with the reference; none is an integer or a power of two from 0.
  options.sm_scale = 1;
  options.q = [](int64_t t, int, int d) {
    return d == 0 ? 0.25f * static_cast<float>(t % 5) - 0.375f : 0.0f;
  };
  options.k = [](int64_t t, int, int d) {
    return d == 0 ? static_cast<float>(t % 7) - 2.5f : 0.0f;
  };
  options.format = "bf16";
  ExpectCaseRight(options);
}

TEST(ScoreFunction, OneFunctionHasOneDigestHoweverItIsWritten) {
  const std::string digest = Digest(
      Text("%a = arith.constant 0.5 : f32\n%r = arith.mulf %s, %a : f32\n"
           "return %r : f32"));
  EXPECT_EQ(digest.size(), 32);
  EXPECT_EQ(digest, Digest("module { func.func private @other(%x:f32,%0:i32,"
                           "%1:i32,\n  %2:i32)->f32 { // a half\n"
                           "%dead = arith.addf %x, %x : f32\n"
                           "%c=arith.constant 5.0e-01:f32 %y=arith.mulf %x,%c:"
                           "f32 func.return %y:f32 } }"));
  EXPECT_NE(digest, Digest(Text("%a = arith.constant 0.25 : f32\n"
                                "%r = arith.mulf %s, %a : f32\n"
                                "return %r : f32")));
  EXPECT_NE(digest, Digest(Text("%a = arith.constant 0.5 : f32\n"
                                "%r = arith.mulf %a, %s : f32\n"
                                "return %r : f32")));
}

TEST(ScoreFunction, CompilingNeedsTheTextAndACachedKernelDoesNot) {
  const std::string text = Text(
      "%x = arith.constant 0.8125 : f32\n%r = arith.mulf %s, %x : f32\n"
      "return %r : f32");
  char folder[] = "/tmp/kvforge-score-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  EngineOptions options = TestEngine().options();
  options.cache_roots = {{folder, false}};
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  KernelSpec spec = *ParseSpec("decode/bf16/d64/g1/page16/bf16");
  spec.score = Digest(text);
  const absl::Status unknown = (*engine)->Prepare(spec).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr(absl::StrCat("the text of score function ", spec.score,
                                     " is not known to this engine")));
  ASSERT_TRUE((*engine)->AddScoreFunction(text).ok());
  KVFORGE_EXPECT_OK((*engine)->Prepare(spec).status());
  EXPECT_EQ((*engine)->statistics().compiles, 2);  // the failed one as well

  options.strict = true;
  engine = Engine::Create(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  KVFORGE_EXPECT_OK((*engine)->Prepare(spec).status());
  EXPECT_EQ((*engine)->statistics().compiles, 0);
  EXPECT_EQ((*engine)->statistics().disk_hits, 1);
  const absl::Status strict = (*engine)->AddScoreFunction(text).status();
  EXPECT_EQ(strict.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(strict.message()),
              HasSubstr("a strict engine has no compiler to read its text"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kvforge
