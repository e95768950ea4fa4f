// Generates text twice from a model of random weights and compares: with a
// cache of bf16 in one pool, a token at a time, and with the cache asked for,
// through hybrid pools, reused prefixes, drafts and a rebuild. The second run
// is given the tokens of the first, so that each attention output has its like.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "examples/engine/output_trace.h"
#include "examples/engine/scenario.h"
#include "runtime/base/status_macros.h"

namespace kvforge::example {
namespace {

enum ExitCode { kExitOk = 0, kExitOutOfBounds = 1, kExitRefused = 3 };

struct Flags {
  std::string model;
  std::string kv_cache_dtype = "auto";
  int64_t kv_cache_bytes = int64_t{2} << 20;
  int64_t rebuilt_bytes = 0;  // 0 = three quarters
  std::string pool = "hybrid";
  std::string target = "host";
  std::string gpu = "sm_80";
  int device = 0;
  uint64_t seed = 1;
  bool list_specs = false;
};

constexpr StepLimits kLimits = {.sequences = kSequences,
                                .prefill_tokens = 64,
                                .decode_tokens = 4,
                                .page_size = 16};

int ArgMax(const Floats& logits) {
  return static_cast<int>(std::max_element(logits.begin(), logits.end()) -
                          logits.begin());
}

struct LayerDifference {
  double worst = 0;
  double bound = 0;
  int64_t rows = 0;
};

struct Comparison {
  std::map<LayerKind, LayerDifference> layers;
  int same_tokens = 0;  // that the logits would have chosen as well
};

void PrintReport(const ModelConfig& config, const MiniEngine& engine,
                 const Comparison& comparison) {
  std::printf("%-14s%10s%14s%8s%10s\n", "pool of layers", "window",
              "bytes/token", "pages", "most used");
  for (size_t i = 0; i < engine.pools().size(); ++i) {
    const PoolPlan& plan = engine.pools()[i];
    std::printf("%-14s%10s%14d%8d%10d\n",
                absl::StrJoin(plan.layers, ",").c_str(),
                plan.window == 0 ? "-" : absl::StrCat(plan.window).c_str(),
                static_cast<int>(CacheBytesPerToken(plan.geometry)),
                plan.num_pages, engine.pages(static_cast<int>(i)).most_held());
  }
  std::printf("%-14s%10s%14s%8s\n", "attention", "rows", "difference", "bound");
  for (const auto& [kind, layer] : comparison.layers) {
    std::printf("%-14s%10d%14.2g%8.2g\n",
                std::string(LayerKindName(kind)).c_str(),
                static_cast<int>(layer.rows), layer.worst, layer.bound);
  }
  const EngineCounts& counts = engine.counts();
  std::printf(
      "%d tokens, %d of them the same by their own logits; %d of %d drafts "
      "kept\n%d prefill steps, %d decode steps, %d graphs; %d tokens of "
      "prefixes reused, %d preemptions\n",
      counts.sampled, comparison.same_tokens, counts.drafts_kept,
      counts.drafted, counts.prefill_steps, counts.decode_steps,
      engine.num_graphs(), counts.reused_tokens, counts.preemptions);
}

absl::StatusOr<Texts> RunBaseline(Engine& engine, const Flags& flags,
                                  const Transformer& model,
                                  const Texts& prompts, OutputTrace& trace) {
  ASSIGN_OR_RETURN(const ModelConfig config,
                   ReadModelConfig(flags.model, "bf16", kLimits.page_size));
  // As many bytes as all sequences at their longest take.
  int64_t bytes = 0;
  for (const PoolPlan& pool :
       PlanPools(config.plan, PoolKind::kUniform, kLimits.page_size)) {
    bytes += pool.PageBytes() * kSequences *
             (config.max_tokens / kLimits.page_size + 1);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<MiniEngine> mini,
                   MiniEngine::Create(engine, config, model,
                                      {PoolKind::kUniform, bytes, kLimits,
                                       /*reuse_prefixes=*/false}));
  EngineHooks hooks;
  hooks.sample = [](int, int, const Floats& logits) { return ArgMax(logits); };
  hooks.observe = [&trace](int sequence, int layer, int position,
                           absl::Span<const float> out) {
    trace.Record(sequence, layer, position, out);
  };
  RETURN_IF_ERROR(RunPlainly(prompts, hooks, *mini));
  Texts texts;
  for (int i = 0; i < kSequences; ++i) texts.push_back(mini->tokens(i));
  return texts;
}

// One a line, of both runs: a manifest of `kvforge prime`.
absl::Status ListSpecs(const Flags& flags) {
  std::set<std::string> specs;
  for (const std::string& dtype : {std::string("bf16"), flags.kv_cache_dtype}) {
    ASSIGN_OR_RETURN(const ModelConfig config,
                     ReadModelConfig(flags.model, dtype, kLimits.page_size));
    for (const KernelSpec& spec : SpecsOf(config, kLimits)) {
      specs.insert(spec.Text());
    }
  }
  std::printf("%s\n", absl::StrJoin(specs, "\n").c_str());
  return absl::OkStatus();
}

// Whether all differences are within their bounds.
absl::StatusOr<bool> Run(const Flags& flags) {
  ASSIGN_OR_RETURN(EngineOptions options, EngineOptionsFromEnvironment());
  options.target =
      flags.target == "cuda" ? TargetKind::kCuda : TargetKind::kHost;
  options.gpu = flags.gpu;
  options.device = flags.device;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                   Engine::Create(std::move(options)));
  ASSIGN_OR_RETURN(
      const ModelConfig config,
      ReadModelConfig(flags.model, flags.kv_cache_dtype, kLimits.page_size));
  std::printf("%s", PlanText(config.plan).c_str());
  RETURN_IF_ERROR(CheckServed(*engine, config, kLimits));
  const Transformer model(config, flags.seed);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<MiniEngine> mini,
      MiniEngine::Create(
          *engine, config, model,
          {flags.pool == "hybrid" ? PoolKind::kHybrid : PoolKind::kUniform,
           flags.kv_cache_bytes, kLimits}));

  const Texts prompts = Prompts(config.vocab_size, flags.seed);
  OutputTrace trace;
  ASSIGN_OR_RETURN(const Texts texts,
                   RunBaseline(*engine, flags, model, prompts, trace));
  std::vector<double> bounds;
  for (const PlannedLayer& layer : config.plan.layers) {
    bounds.push_back(DifferenceBound(layer));
  }
  Comparison comparison;
  EngineHooks hooks;
  hooks.sample = [&](int sequence, int position, const Floats& logits) {
    const int token = texts[sequence][position + 1];
    if (ArgMax(logits) == token) ++comparison.same_tokens;
    return token;
  };
  hooks.draft = [&](int sequence, absl::Span<const int> tokens) {
    return Draft(texts, config.vocab_size, sequence, tokens);
  };
  hooks.observe = [&](int sequence, int layer, int position,
                      absl::Span<const float> out) {
    LayerDifference& kind = comparison.layers[config.kinds[layer]];
    kind.bound = std::max(kind.bound, bounds[layer]);
    kind.worst =
        std::max(kind.worst, trace.Difference(sequence, layer, position, out));
    ++kind.rows;
  };
  const int64_t rebuilt_bytes = flags.rebuilt_bytes > 0
                                    ? flags.rebuilt_bytes
                                    : flags.kv_cache_bytes / 4 * 3;
  RETURN_IF_ERROR(RunEverything(prompts, hooks, rebuilt_bytes, *mini));
  PrintReport(config, *mini, comparison);
  return std::all_of(
      comparison.layers.begin(), comparison.layers.end(),
      [](const auto& item) { return item.second.worst <= item.second.bound; });
}

int Refused(const absl::Status& status) {
  std::fprintf(stderr, "mini_engine: %s\n",
               std::string(status.message()).c_str());
  return kExitRefused;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("A miniature engine over kvforge's caches and kernels");
  app.add_option("--model", flags.model, "Folder with a config.json")
      ->required();
  app.add_option("--kv-cache-dtype", flags.kv_cache_dtype,
                 "A format of `kvforge formats`; auto: what the model says")
      ->capture_default_str();
  app.add_option("--kv-cache-bytes", flags.kv_cache_bytes, "Of all pools")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--rebuilt-bytes", flags.rebuilt_bytes,
                 "Of the cache that is rebuilt half way (default: three "
                 "quarters)")
      ->check(CLI::PositiveNumber);
  app.add_option("--pool", flags.pool, "Whether layers with a window have one")
      ->check(CLI::IsMember({"uniform", "hybrid"}))
      ->capture_default_str();
  app.add_option("--target", flags.target, "Where kernels run")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  app.add_option("--gpu", flags.gpu, "GPU whose text the host target runs")
      ->capture_default_str();
  app.add_option("--device", flags.device, "Ordinal of the GPU, for cuda")
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "Of weights and prompts")
      ->capture_default_str();
  app.add_flag("--list-specs", flags.list_specs,
               "Print what is to be primed, and run nothing");
  CLI11_PARSE(app, argc, argv);
  if (flags.list_specs) {
    const absl::Status listed = ListSpecs(flags);
    return listed.ok() ? kExitOk : Refused(listed);
  }
  const absl::StatusOr<bool> within_bounds = Run(flags);
  if (!within_bounds.ok()) return Refused(within_bounds.status());
  std::printf("mini_engine: %s\n", *within_bounds ? "ok" : "out of bounds");
  return *within_bounds ? kExitOk : kExitOutOfBounds;
}

}  // namespace
}  // namespace kvforge::example

int main(int argc, char** argv) { return kvforge::example::Main(argc, argv); }
