// Store, extend, decode and merge over drawn shapes, formats and features
// against the double-precision reference. The kernels are a fixed list
// (random_kernels.h); a case takes everything else from --random-seed, which is
// printed. --random-cases gives their number.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/kernels/random_kernels.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

constexpr int kHostCases = 2000;
constexpr int kGpuCases = 20000;
// Tests that the families are dealt out to, so that shards have equal work.
constexpr int kBlocks = 40;
// Of kCaseLayouts, by slot order: a family stays with one order.
constexpr int kLayoutsOfOrder[2][3] = {{0, 2, 4}, {1, 3, 5}};
// Products of rows, keys and head_dim that a case of the CPU may have.
constexpr int64_t kMostHostWork = 3'000'000;

const std::vector<std::string>& HostGpus() {
  // Bit placement; hardware conversions of fp8, tensor copies and products of
  // warpgroups; conversions of fp4 as well.
  static const std::vector<std::string> gpus = {"sm_80", "sm_90", "sm_100"};
  return gpus;
}

const std::vector<KernelFamily>& Families() {
  static const std::vector<KernelFamily> families =
      OnCuda() || ListingSpecs()
          ? DrawFamilies({std::string(TestEngine().gpu().name)},
                         kMostGpuKernels)
          : DrawFamilies(HostGpus(), kMostHostKernels);
  return families;
}

Engine& EngineOf(const std::string& gpu) {
  if (OnCuda() || ListingSpecs() || gpu == TestEngine().gpu().name) {
    return TestEngine();
  }
  static std::map<std::string, std::unique_ptr<Engine>> engines;
  std::unique_ptr<Engine>& engine = engines[gpu];
  if (engine == nullptr) {
    EngineOptions options = TestEngine().options();
    options.gpu = gpu;
    absl::StatusOr<std::unique_ptr<Engine>> created =
        Engine::Create(std::move(options));
    EXPECT_TRUE(created.ok()) << created.status();
    engine = *std::move(created);
  }
  return *engine;
}

struct DrawnCase {
  CaseOptions options;
  int layout = 0;
};

// Lengths of a batch whose longest query has family.q_max tokens.
void DrawLengths(const KernelFamily& family, Draw& draw, CaseOptions& options) {
  const int64_t of_key =
      int64_t{options.num_q_heads} * (options.head_dim + options.v_head_dim);
  const int batch = draw.Between(1, 4);
  const int longest = draw.Between(0, batch - 1);
  for (int b = 0; b < batch; ++b) {
    const int q_len = b == longest    ? family.q_max
                      : draw.OneIn(4) ? 0
                                      : draw.Between(1, family.q_max);
    const int most = static_cast<int>(std::clamp<int64_t>(
        kMostHostWork / batch / std::max(1, q_len) / of_key, 20, 320));
    int kv_len = 0;
    if (draw.OneIn(6)) {
      kv_len = draw.Between(0, q_len);  // tokens without a key where causal
    } else if (draw.OneIn(3)) {
      kv_len =
          std::min(most, draw.Of({15, 16, 17, 63, 64, 65, 128, 129, 192, 257}));
    } else {
      kv_len = draw.Between(0, most);
    }
    options.q_lens.push_back(q_len);
    options.kv_lens.push_back(kv_len);
  }
}

DrawnCase DrawCase(const KernelFamily& family, uint64_t seed, int f, int c) {
  std::seed_seq sequence{static_cast<uint32_t>(seed),
                         static_cast<uint32_t>(seed >> 32),
                         static_cast<uint32_t>(f), static_cast<uint32_t>(c)};
  uint32_t state[2];
  sequence.generate(state, state + 2);
  Draw draw(uint64_t{state[0]} << 32 | state[1]);
  DrawnCase drawn;
  CaseOptions& options = drawn.options;
  options = family.options;
  options.name = absl::StrCat("family ", f, " case ", c);
  options.seed = draw.Between(1, 1 << 30);
  options.sm_scale = draw.OneIn(4) ? 0.5f : 0.0f;
  options.k_scale = draw.Of({0.031f, 0.5f, 0.0078125f});
  options.v_scale = draw.Of({0.027f, 2.0f, 0.001f});
  if (family.custom_mask) {
    const uint64_t bits = options.seed;
    options.mask = [bits](int b, int t, int j) {
      uint64_t x = bits + b * 0x9E3779B97F4A7C15u + t * 0xBF58476D1CE4E5B9u +
                   j * 0x94D049BB133111EBu;
      x = (x ^ (x >> 31)) * 0xD6E8FEB86659FD93u;
      return (x >> 40 & 3) != 0;
    };
  }
  DrawLengths(family, draw, options);
  drawn.layout = kLayoutsOfOrder[family.hnd][draw.Between(0, 2)];
  return drawn;
}

std::string Reproduction(const std::string& gpu, int f, int c) {
  return absl::StrCat("random_cases_test --target ",
                      OnCuda() ? "cuda" : absl::StrCat("host --gpu ", gpu),
                      " --random-seed ", Flags().random_seed, " --random-case ",
                      f, ":", c);
}

std::string Describe(const DrawnCase& drawn) {
  std::string text =
      absl::StrCat(kCaseLayouts[drawn.layout].name, ", kv heads ",
                   drawn.options.num_kv_heads, ", sm_scale ",
                   drawn.options.sm_scale, ", q and kv lengths");
  for (size_t i = 0; i < drawn.options.q_lens.size(); ++i) {
    absl::StrAppend(&text, " ", drawn.options.q_lens[i], ":",
                    drawn.options.kv_lens[i]);
  }
  return text;
}

struct DrawnResult {
  std::string failures;   // "" = none
  bool attended = false;  // an attention kernel ran
  double out_ratio = 0;   // largest error of an output over its bound
};

DrawnResult RunDrawn(int f, int c) {
  const KernelFamily& family = Families()[f];
  const DrawnCase drawn = DrawCase(family, Flags().random_seed, f, c);
  const absl::StatusOr<AttentionCase> problem = GenerateCase(drawn.options);
  DrawnResult outcome;
  const auto fail = [&](absl::string_view what) {
    absl::StrAppend(&outcome.failures, Reproduction(family.gpu, f, c), "\n  ",
                    absl::StrJoin(family.Specs(), " "), "\n  ", Describe(drawn),
                    "\n  ", what, "\n");
  };
  if (!problem.ok()) {
    fail(problem.status().message());
    return outcome;
  }
  const CaseRun run = RunCase(EngineOf(family.gpu), *problem, drawn.layout, 1,
                              WithOtherTiles());
  for (const KernelResult& result : run.results) {
    if (!result.status.ok()) {
      fail(absl::StrCat(result.kernel, ": ", result.status.message()));
    } else if (result.kernel != "store") {
      outcome.attended = true;
    }
    outcome.out_ratio = std::max(outcome.out_ratio, result.errors.out_ratio);
  }
  return outcome;
}

// The families of a block and the cases of each, one after another.
std::vector<std::pair<int, int>> CasesOfBlock(int block) {
  std::vector<std::pair<int, int>> cases;
  if (const std::string& only = Flags().random_case; !only.empty()) {
    int f = 0, c = 0;
    if (std::sscanf(only.c_str(), "%d:%d", &f, &c) != 2 || f < 0 ||
        f >= static_cast<int>(Families().size())) {
      ADD_FAILURE() << "--random-case " << only << " is no FAMILY:CASE with "
                    << Families().size() << " families";
    } else if (f % kBlocks == block) {
      cases.emplace_back(f, c);
    }
    return cases;
  }
  const int families = static_cast<int>(Families().size());
  const int total = Flags().random_cases > 0 ? Flags().random_cases
                    : OnCuda()               ? kGpuCases
                                             : kHostCases;
  for (int f = block; f < families; f += kBlocks) {
    // The first families have the cases that do not divide evenly.
    const int count = total / families + (f < total % families ? 1 : 0);
    for (int c = 0; c < count; ++c) cases.emplace_back(f, c);
  }
  return cases;
}

class RandomCases : public ::testing::TestWithParam<int> {};

TEST_P(RandomCases, MatchTheReference) {
  if (ListingSpecs()) {
    for (int f = GetParam(); f < static_cast<int>(Families().size());
         f += kBlocks) {
      for (const std::string& spec : Families()[f].Specs()) {
        PreparedInOtherTiles(Prepared(spec)->spec());
      }
    }
    return;
  }
  const std::vector<std::pair<int, int>> cases = CasesOfBlock(GetParam());
  // On a GPU the reference on the CPU takes the time.
  const int threads =
      OnCuda() ? std::max(1u, std::thread::hardware_concurrency()) : 1;
  std::atomic<size_t> next = 0;
  std::atomic<int> attended = 0;
  std::vector<std::string> failures;
  double out_ratio = 0;
  std::mutex mutex;  // guards failures and out_ratio
  for (const auto& [f, c] : cases) EngineOf(Families()[f].gpu);
  const auto work = [&] {
    for (size_t i = next++; i < cases.size(); i = next++) {
      const DrawnResult result = RunDrawn(cases[i].first, cases[i].second);
      if (result.attended) ++attended;
      std::lock_guard lock(mutex);
      out_ratio = std::max(out_ratio, result.out_ratio);
      if (!result.failures.empty()) failures.push_back(result.failures);
    }
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < threads; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  std::printf("seed %llu, %d cases, output errors up to %.3f of the bound\n",
              static_cast<unsigned long long>(Flags().random_seed),
              static_cast<int>(cases.size()), out_ratio);
  constexpr size_t kShown = 5;
  for (size_t i = 0; i < std::min(kShown, failures.size()); ++i) {
    ADD_FAILURE() << failures[i];
  }
  EXPECT_EQ(failures.size(), 0u);
  EXPECT_EQ(attended, static_cast<int>(cases.size()));
}

INSTANTIATE_TEST_SUITE_P(Blocks, RandomCases, ::testing::Range(0, kBlocks));

// Every value that a draw may give is in the list of kernels or in the cases.
void ExpectAllDrawn(const std::vector<KernelFamily>& families,
                    int most_kernels) {
  std::set<std::pair<std::string, std::string>> kernels;
  std::map<std::string, std::set<std::string>> drawn;
  bool mixed = false, other_v_dim = false, empty_kv = false, empty_q = false,
       rows_without_keys = false;
  std::set<std::string> layouts;
  for (size_t f = 0; f < families.size(); ++f) {
    const KernelFamily& family = families[f];
    const CaseOptions& options = family.options;
    for (const std::string& spec : family.Specs()) {
      kernels.insert({family.gpu, spec});
    }
    drawn["K format"].insert(options.format);
    drawn["V format"].insert(options.v_format);
    drawn["head_dim"].insert(absl::StrCat(options.head_dim));
    drawn["page"].insert(absl::StrCat(options.page_size));
    drawn["group"].insert(
        absl::StrCat(options.num_q_heads / options.num_kv_heads));
    drawn["window"].insert(absl::StrCat(options.window));
    drawn["softcap"].insert(absl::StrCat(options.softcap));
    drawn["sinks"].insert(absl::StrCat(options.sinks));
    drawn["alibi"].insert(absl::StrCat(options.alibi));
    drawn["mask"].insert(family.custom_mask ? "custom"
                         : options.causal   ? "causal"
                                            : "full");
    drawn["sparse block"].insert(absl::StrCat(options.sparse_block));
    drawn["source"].insert(std::string(DTypeName(options.source_type)));
    drawn["query"].insert(std::string(DTypeName(options.query_type)));
    drawn["out"].insert(std::string(DTypeName(options.out_type)));
    drawn["order"].insert(family.hnd ? "hnd" : "nhd");
    drawn["q_max"].insert(absl::StrCat(family.q_max));
    mixed = mixed || options.format != options.v_format;
    other_v_dim = other_v_dim || options.head_dim != options.v_head_dim;
    for (int c = 0; c < 20; ++c) {
      const DrawnCase one = DrawCase(family, 20, static_cast<int>(f), c);
      layouts.insert(kCaseLayouts[one.layout].name);
      for (size_t b = 0; b < one.options.q_lens.size(); ++b) {
        const int q_len = one.options.q_lens[b];
        const int kv_len = one.options.kv_lens[b];
        empty_q = empty_q || q_len == 0;
        empty_kv = empty_kv || kv_len == 0;
        rows_without_keys = rows_without_keys || kv_len < q_len;
      }
    }
  }
  EXPECT_LE(kernels.size(), static_cast<size_t>(most_kernels));
  EXPECT_GE(kernels.size(), static_cast<size_t>(most_kernels) - 10);
  const std::map<std::string, size_t> values = {
      {"K format", std::size(kFormats)},
      {"V format", std::size(kFormats)},
      {"head_dim", 14},
      {"page", 9},
      {"group", 13},
      {"window", 7},
      {"softcap", 3},
      {"sinks", 2},
      {"alibi", 2},
      {"mask", 3},
      {"sparse block", 5},
      {"source", 3},
      {"query", 3},
      {"out", 3},
      {"order", 2},
      {"q_max", 6}};
  for (const auto& [what, count] : values) {
    EXPECT_EQ(drawn[what].size(), count)
        << what << ": " << absl::StrJoin(drawn[what], ", ");
  }
  // NHD and HND, interleaved, padded pages, offsets, narrow accesses.
  EXPECT_EQ(layouts.size(), std::size(kCaseLayouts));
  EXPECT_TRUE(mixed);
  EXPECT_TRUE(other_v_dim);
  EXPECT_TRUE(empty_q);
  EXPECT_TRUE(empty_kv);
  EXPECT_TRUE(rows_without_keys);
}

TEST(RandomKernels, OfTheCpuHaveEveryValue) {
  ExpectAllDrawn(DrawFamilies(HostGpus(), kMostHostKernels), kMostHostKernels);
}

TEST(RandomKernels, OfAGpuHaveEveryValue) {
  ExpectAllDrawn(DrawFamilies({"sm_90"}, kMostGpuKernels), kMostGpuKernels);
}

}  // namespace
}  // namespace kvforge
