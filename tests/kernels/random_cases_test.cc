// Store, extend, decode and merge over drawn shapes, formats and features
// against the double-precision reference, on the text of two GPUs. A draw takes
// every value from one seed, which is printed: --gtest_random_seed=S repeats
// it, and --gtest_repeat=N goes on with the seeds behind it.
#include <algorithm>
#include <random>

#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

// Each family takes up to four kernels, compiled on the first run.
constexpr int kFamilies = 5;
constexpr int kCasesOfFamily = 4;
constexpr int kFirstSeed = 20;
// Of kCaseLayouts, by slot order: a family stays with one order.
constexpr int kLayoutsOfOrder[2][3] = {{0, 2, 4}, {1, 3, 5}};

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  int Between(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }
  bool OneIn(int n) { return Between(1, n) == 1; }
  template <typename T>
  T Of(std::initializer_list<T> values) {
    return values.begin()[Between(0, static_cast<int>(values.size()) - 1)];
  }

 private:
  std::mt19937_64 random_;
};

struct Family {
  CaseOptions options;  // what decides the kernels
  int order = 0;
  int q_max = 0;  // tokens of one sequence: above 16 decode has no kernel
};

int DrawHeadDim(Draw& draw) {
  if (draw.OneIn(16)) return 512;
  return draw.OneIn(3) ? draw.Of({64, 128}) : 16 * draw.Between(4, 16);
}

Family DrawFamily(Draw& draw) {
  Family family;
  CaseOptions& options = family.options;
  const auto format = [&](int head_dim) {
    const KvFormat* format;
    do {
      const int last = static_cast<int>(std::size(kFormats)) - 1;
      format = &kFormats[draw.Between(0, last)];
    } while (!CheckFormat(*format, head_dim).ok());
    return std::string(format->name);
  };
  const auto type = [&] {
    return draw.Of({DType::kF32, DType::kBf16, DType::kF16});
  };
  options.head_dim = DrawHeadDim(draw);
  if (draw.OneIn(3)) options.v_head_dim = DrawHeadDim(draw);
  const int v_head_dim =
      options.v_head_dim != 0 ? options.v_head_dim : options.head_dim;
  options.format = format(options.head_dim);
  if (draw.OneIn(2) ||
      !CheckFormat(*FindFormat(options.format).value(), v_head_dim).ok()) {
    options.v_format = format(v_head_dim);
  }
  options.num_kv_heads = draw.Between(1, 3);
  const int group =
      draw.OneIn(12) ? 128 : draw.Of({1, 2, 3, 4, 5, 7, 8, 12, 16, 24});
  if (group > 16) options.num_kv_heads = 1;
  options.num_q_heads = group * options.num_kv_heads;
  options.page_size = draw.Of({1, 3, 16, 48, 64, 96, 128, 192, 256});
  options.causal = !draw.OneIn(4);
  if (draw.OneIn(3)) options.window = draw.Of({1, 2, 17, 64, 100, 1 << 20});
  if (draw.OneIn(4)) options.softcap = draw.Of({0.5f, 8.0f, 50.0f});
  options.sinks = draw.OneIn(4);
  options.source_type = type();
  options.query_type = type();
  options.out_type = draw.OneIn(3) ? type() : options.query_type;
  options.k_scale = draw.Of({0.031f, 0.5f, 0.0078125f});
  options.v_scale = draw.Of({0.027f, 2.0f, 0.001f});
  family.order = draw.Between(0, 1);
  if (draw.OneIn(2)) {
    family.q_max = draw.OneIn(2) ? 1 : draw.Between(2, 16);
  } else {
    family.q_max = group > 16 ? draw.Between(17, 20) : draw.Between(17, 90);
  }
  return family;
}

// Lengths of a batch whose longest q has family.q_max tokens.
void DrawLengths(const Family& family, Draw& draw, CaseOptions& options) {
  const int batch = draw.Between(1, 5);
  const int longest = draw.Between(0, batch - 1);
  for (int b = 0; b < batch; ++b) {
    const int q_len = b == longest    ? family.q_max
                      : draw.OneIn(5) ? 0
                                      : draw.Between(1, family.q_max);
    int kv_len = 0;
    if (draw.OneIn(6)) {
      kv_len = draw.Between(0, q_len);  // tokens without a key where causal
    } else if (draw.OneIn(3)) {
      kv_len = draw.Of({15, 16, 17, 63, 64, 65, 128, 129, 192, 257});
    } else {
      kv_len = q_len + draw.Between(0, 320);
    }
    options.q_lens.push_back(q_len);
    options.kv_lens.push_back(kv_len);
  }
}

Engine& EngineOf(const std::string& gpu) {
  static std::map<std::string, std::unique_ptr<Engine>> engines;
  std::unique_ptr<Engine>& engine = engines[gpu];
  if (engine == nullptr) {
    absl::StatusOr<EngineOptions> options = EngineOptionsFromEnvironment();
    EXPECT_TRUE(options.ok()) << options.status();
    options->gpu = gpu;
    absl::StatusOr<std::unique_ptr<Engine>> created =
        Engine::Create(*std::move(options));
    EXPECT_TRUE(created.ok()) << created.status();
    engine = *std::move(created);
  }
  return *engine;
}

std::string Describe(const CaseOptions& options) {
  std::string text = absl::StrCat(
      "kv heads ", options.num_kv_heads, ", sm_scale ", options.sm_scale,
      ", source ", DTypeName(options.source_type), ", q, kv lengths");
  for (size_t i = 0; i < options.q_lens.size(); ++i) {
    absl::StrAppend(&text, " ", options.q_lens[i], ":", options.kv_lens[i]);
  }
  return text;
}

TEST(RandomCases, AllKernelsMatchTheReference) {
  static int runs = 0;
  const int asked = GTEST_FLAG_GET(random_seed);
  const int seed = (asked == 0 ? kFirstSeed : asked) + runs++;
  std::printf("seed %d\n", seed);
  Draw draw(seed);
  int attended = 0;
  for (int f = 0; f < kFamilies; ++f) {
    const Family family = DrawFamily(draw);
    Engine& engine = EngineOf(draw.Of<const char*>({"sm_80", "sm_89"}));
    for (int c = 0; c < kCasesOfFamily; ++c) {
      CaseOptions options = family.options;
      options.name = absl::StrCat("seed ", seed, " family ", f, " case ", c);
      options.seed = draw.Between(1, 1 << 30);
      options.sm_scale = draw.OneIn(4) ? 0.5f : 0.0f;
      DrawLengths(family, draw, options);
      const int layout = kLayoutsOfOrder[family.order][draw.Between(0, 2)];
      const AttentionCase problem = Generated(options);
      const CaseRun run = RunCase(engine, problem, layout, 1);
      for (const KernelResult& result : run.results) {
        if (result.kernel != "store" && result.status.ok()) ++attended;
        const absl::StatusOr<KernelSpec> spec =
            CaseSpec(problem,
                     result.kernel == "extend" ? KernelKind::kExtend
                                               : KernelKind::kDecode,
                     kCaseLayouts[layout].order);
        // Not even the smallest tile fits: said with numbers, not wrong.
        if (absl::IsResourceExhausted(result.status)) continue;
        EXPECT_TRUE(result.status.ok())
            << problem.name << " on " << engine.gpu().name << ", "
            << result.layout << ", " << result.kernel << " "
            << (spec.ok() ? spec->Text() : "") << ", " << Describe(options)
            << ": " << result.status;
      }
    }
  }
  EXPECT_GE(attended, kFamilies * kCasesOfFamily / 2);
}

}  // namespace
}  // namespace kvforge
