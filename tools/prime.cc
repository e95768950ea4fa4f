// `kvforge prime`: compiles SPECs for GPUs into a cache folder, without a GPU.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "compiler/tile/tile_selector.h"
#include "kernels/decode.h"
#include "runtime/base/file.h"
#include "runtime/base/shown.h"
#include "runtime/base/status_macros.h"
#include "runtime/tune/winners.h"
#include "tools/command.h"
#include "tools/model_specs.h"
#include "tools/prime_manifest.h"
#include "tools/prime_threads.h"
#include "tools/progress.h"

namespace kvforge {
namespace {

struct PrimeFlags {
  EngineFlags engine;
  std::vector<std::string> specs;
  ModelOptions model;  // without a folder: none
  std::vector<std::string> gpus;
  std::string score;    // file of a score function; "" = none
  std::string tune_db;  // winners whose tiles are compiled too; "" = none
  int threads = 0;      // 0 = cores
  std::string shard;
  bool recompile = false;
  bool dry_run = false;
  bool json = false;
};

struct PrimeJob {
  std::string spec;  // with a tile behind it if not the selector's
  PrimeTarget target;
};

struct Shard {
  int index = 0;
  int count = 1;
};

absl::StatusOr<Shard> ParseShard(const std::string& text) {
  Shard shard;
  if (text.empty()) return shard;
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &shard.index) ||
      !absl::SimpleAtoi(parts[1], &shard.count) || shard.index < 0 ||
      shard.index >= shard.count) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shard ", Shown(text),
                     " is no part of a whole; i/n with 0 <= i < n is "
                     "supported; use 0/4 to 3/4 for four machines"));
  }
  return shard;
}

struct PrimePlan {
  std::optional<ModelPlan> model;
  std::vector<std::string> specs;  // each once, sorted; as PrimeJob has them
  std::vector<PrimeJob> jobs;      // this shard's: every SPEC for every GPU
};

// The SPECs of `specs` whose tile is not given, with the tiles that won on a
// device of the target's kind.
absl::StatusOr<std::set<std::string>> WithWinners(
    const std::set<std::string>& specs, const Winners& winners,
    const Engine& engine, const PrimeTarget& target) {
  std::set<std::string> jobs = specs;
  for (const auto& [key, winner] : winners.all()) {
    if (winner.gpu != target.gpu->name || specs.count(winner.spec) == 0) {
      continue;
    }
    ASSIGN_OR_RETURN(const KernelSpec spec, ParseSpec(winner.spec));
    ASSIGN_OR_RETURN(const CandidateParts parts,
                     ParseCandidate(winner.candidate));
    ASSIGN_OR_RETURN(const Tile tile, ParseTile(parts.tile));
    const KeyFields kernel = engine.Key(spec, tile, *target.gpu, target.target);
    // A winner of another build is another kernel; an engine takes the
    // selector's tile then.
    if (KeyDigest(kernel) != winner.version) continue;
    const absl::StatusOr<TileCandidate> selected =
        SelectTile(spec, *target.gpu);
    if (selected.ok() && selected->tile == tile) continue;
    jobs.insert(absl::StrCat(winner.spec, " ", parts.tile));
  }
  return jobs;
}

// Score functions of the SPECs become known to `engine`.
absl::StatusOr<PrimePlan> PlanJobs(const PrimeFlags& flags,
                                   std::optional<ModelPlan> model,
                                   Engine& engine) {
  ASSIGN_OR_RETURN(const Shard shard, ParseShard(flags.shard));
  PrimePlan plan;
  plan.model = std::move(model);
  ASSIGN_OR_RETURN(std::vector<SpecLine> lines, ReadSpecs(flags.specs));
  if (plan.model) {
    ASSIGN_OR_RETURN(const std::vector<KernelSpec> specs,
                     SpecsOf(*plan.model, flags.model));
    for (const KernelSpec& spec : specs) lines.push_back({spec.Text(), "", ""});
  }
  std::set<std::string> unique;
  for (const SpecLine& line : lines) {
    absl::StatusOr<KernelSpec> spec = ParseSpec(line.spec);
    const std::string tile =
        line.tile.empty() ? "" : absl::StrCat(" ", line.tile);
    if (!spec.ok()) {  // reported with what fails to compile
      unique.insert(line.spec + tile);
      continue;
    }
    const bool attention = spec->kernel == KernelKind::kDecode ||
                           spec->kernel == KernelKind::kExtend;
    const std::string& file = !line.score_file.empty() ? line.score_file
                              : attention && spec->score.empty()
                                  ? flags.score
                                  : std::string();
    if (!file.empty()) {
      ASSIGN_OR_RETURN(spec->score, AddScoreFile(engine, file));
      RETURN_IF_ERROR(ValidateSpec(*spec));
    }
    unique.insert(spec->Text() + tile);
  }
  plan.specs.assign(unique.begin(), unique.end());
  // In turn, since neighbours of the list take alike long.
  int64_t number = 0;
  Winners winners;
  if (!flags.tune_db.empty()) {
    ASSIGN_OR_RETURN(winners, Winners::Read(flags.tune_db));
  }
  for (const std::string& gpu : flags.gpus) {
    ASSIGN_OR_RETURN(const PrimeTarget target, ParsePrimeTarget(gpu));
    ASSIGN_OR_RETURN(const std::set<std::string> specs,
                     WithWinners(unique, winners, engine, target));
    for (const std::string& spec : specs) {
      if (number++ % shard.count == shard.index) {
        plan.jobs.push_back({spec, target});
      }
    }
  }
  return plan;
}

// A SPEC of the plan and the tile behind it, if it has one.
struct ResolvedSpec {
  KernelSpec spec;
  Tile tile;
};

absl::StatusOr<ResolvedSpec> Resolve(const PrimeJob& job) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(job.spec, absl::MaxSplits(' ', 1));
  ResolvedSpec resolved;
  ASSIGN_OR_RETURN(resolved.spec, ParseSpec(parts.first));
  if (parts.second.empty()) {
    ASSIGN_OR_RETURN(const TileCandidate choice,
                     SelectTile(resolved.spec, *job.target.gpu));
    resolved.tile = choice.tile;
  } else {
    ASSIGN_OR_RETURN(resolved.tile, ParseTile(parts.second));
    RETURN_IF_ERROR(CheckTile(resolved.spec, resolved.tile, *job.target.gpu));
  }
  return resolved;
}

struct PrimeOutcome {
  std::vector<PrimedKernel> kernels;
  std::vector<std::string> failures;
  int compiled = 0;
  int found = 0;
};

absl::StatusOr<std::shared_ptr<const Entry>> CompileJob(Engine& engine,
                                                        const PrimeJob& job,
                                                        KernelSource* source) {
  ASSIGN_OR_RETURN(const ResolvedSpec resolved, Resolve(job));
  ASSIGN_OR_RETURN(std::shared_ptr<const Entry> entry,
                   engine.Compile(resolved.spec, resolved.tile, *job.target.gpu,
                                  job.target.target, source));
  // To an engine a kernel that stays in memory is as good; here it is lost.
  const std::string path =
      DiskCache::EntryPath(engine.options().cache_roots[0].path, entry->key);
  if (access(path.c_str(), F_OK) != 0) {
    return absl::UnavailableError(
        absl::StrCat("compiled, but not written to ", path,
                     "; the log says why; make room and prime again"));
  }
  return entry;
}

PrimeOutcome RunJobs(Engine& engine, const std::vector<PrimeJob>& jobs,
                     int threads) {
  PrimeOutcome outcome;
  std::mutex mutex;  // guards outcome and progress
  Progress progress(jobs.size());
  std::atomic<size_t> next = 0;
  size_t done = 0;
  const auto work = [&] {
    for (size_t i = next++; i < jobs.size(); i = next++) {
      const PrimeJob& job = jobs[i];
      KernelSource source = KernelSource::kMemory;
      const absl::StatusOr<std::shared_ptr<const Entry>> entry =
          CompileJob(engine, job, &source);
      std::lock_guard lock(mutex);
      if (entry.ok()) {
        outcome.kernels.push_back(Describe(TargetName(job.target), **entry));
        ++(source == KernelSource::kCompiled ? outcome.compiled
                                             : outcome.found);
      } else {
        outcome.failures.push_back(absl::StrCat(job.spec, " for ",
                                                job.target.name, ": ",
                                                entry.status().message()));
      }
      progress.Step(++done, job.spec);
    }
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < threads; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  std::sort(outcome.failures.begin(), outcome.failures.end());
  return outcome;
}

// What would be compiled, as a manifest: prime takes it as it is.
absl::StatusOr<int> ShowPlan(const PrimeFlags& flags, const PrimePlan& plan) {
  for (const PrimeJob& job : plan.jobs) {
    RETURN_IF_ERROR(Resolve(job).status());
  }
  if (flags.json) {
    nlohmann::json document = {{"specs", plan.specs}};
    if (plan.model) document["model"] = PlanJson(*plan.model);
    PrintJson(document);
    return kExitOk;
  }
  if (plan.model) {
    for (const absl::string_view line :
         absl::StrSplit(PlanText(*plan.model), '\n', absl::SkipEmpty())) {
      std::printf("# %s\n", std::string(line).c_str());
    }
  }
  for (const std::string& spec : plan.specs) std::printf("%s\n", spec.c_str());
  return kExitOk;
}

absl::Status CheckFlags(const PrimeFlags& flags) {
  const auto missing = [](absl::string_view what, absl::string_view advice) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prime: ", what, "; expected SPECs, manifests or --model DIR, and ",
        "without --dry-run also --gpus and --cache; ", advice));
  };
  if (flags.specs.empty() && flags.model.folder.empty()) {
    return missing("there is no SPEC", "name one or a model's folder");
  }
  if (flags.dry_run) return absl::OkStatus();
  if (flags.gpus.empty()) {
    return missing("--gpus is missing",
                   "add such as --gpus sm_80,sm_90; see `kvforge gpus`");
  }
  if (flags.engine.cache.empty()) {
    return missing("--cache is missing", "add --cache DIR");
  }
  return absl::OkStatus();
}

void PrintOutcome(const PrimeFlags& flags, const PrimePlan& plan,
                  const PrimeOutcome& outcome, double seconds) {
  if (flags.json) {
    nlohmann::json document = {{"compiled", outcome.compiled},
                               {"found", outcome.found},
                               {"failures", outcome.failures},
                               {"seconds", seconds}};
    if (plan.model) document["model"] = PlanJson(*plan.model);
    return PrintJson(document);
  }
  for (const std::string& failure : outcome.failures) {
    std::printf("failed: %s\n", failure.c_str());
  }
  std::printf("%d compiled, %d found, %d failed in %.1f s\n", outcome.compiled,
              outcome.found, static_cast<int>(outcome.failures.size()),
              seconds);
}

absl::StatusOr<int> Prime(const PrimeFlags& flags) {
  RETURN_IF_ERROR(CheckFlags(flags));
  std::optional<ModelPlan> model;
  if (!flags.model.folder.empty()) {
    RETURN_IF_ERROR(CheckModelOptions(flags.model));
    absl::StatusOr<ModelPlan> read = PlanModel(flags.model);
    if (!read.ok()) {
      return absl::IsUnimplemented(read.status())
                 ? Fail(read.status())
                 : Fail(read.status(), kExitUnreadable);
    }
    model = *std::move(read);
  }
  ASSIGN_OR_RETURN(EngineOptions options, OptionsFromFlags(flags.engine));
  options.recompile = options.recompile || flags.recompile;
  PrimeFlags with_winners = flags;
  if (flags.tune_db.empty()) with_winners.tune_db = options.tune_db;
  options.cache_byte_cap = 0;  // what was asked for stays, however large
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                   Engine::Create(std::move(options)));
  ASSIGN_OR_RETURN(const PrimePlan plan,
                   PlanJobs(with_winners, std::move(model), *engine));
  if (plan.specs.empty()) {
    return Fail(
        absl::InvalidArgumentError(absl::StrCat(
            "prime: ", Shown(absl::StrJoin(flags.specs, ", ")),
            " names no SPEC; a manifest has one a line, such as "
            "decode/e4m3_row/d128/g4/page16/bf16, and comments behind #; "
            "nothing was compiled")),
        kExitFailed);
  }
  if (flags.dry_run) return ShowPlan(flags, plan);
  if (plan.model && !flags.json) {
    std::printf("%s%d SPECs\n", PlanText(*plan.model).c_str(),
                static_cast<int>(plan.specs.size()));
    std::fflush(stdout);
  }
  RETURN_IF_ERROR(MakeFolders(flags.engine.cache));
  const absl::Time start = absl::Now();
  const PrimeOutcome outcome =
      RunJobs(*engine, plan.jobs,
              PrimeThreads(flags.threads, plan.jobs.size(), ThisMachine()));
  std::string manifest = "manifest.json";
  if (!flags.shard.empty()) {
    ASSIGN_OR_RETURN(const Shard shard, ParseShard(flags.shard));
    manifest =
        absl::StrCat("manifest-", shard.index, "-of-", shard.count, ".json");
  }
  std::string warning;
  RETURN_IF_ERROR(UpdatePrimeManifest(flags.engine.cache, manifest,
                                      outcome.kernels, &warning));
  if (!warning.empty()) {
    std::fprintf(stderr, "kvforge: %s\n", warning.c_str());
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  AppendPrimeHistory(flags.engine.cache,
                     {start, seconds, flags.shard, outcome.compiled,
                      outcome.found, outcome.failures.size()});
  PrintOutcome(flags, plan, outcome, seconds);
  return outcome.failures.empty() ? kExitOk : kExitFailed;
}

void AddModelFlags(CLI::App& prime, ModelOptions& model) {
  prime.add_option("--model", model.folder,
                   "Folder with a model's config.json and perhaps its "
                   "checkpoint: what its layers need, beside the SPECs");
  prime
      .add_option("--kv-cache-dtype", model.kv_cache_format,
                  "Format of --model's cache; auto: what its files say. See "
                  "`kvforge formats`")
      ->capture_default_str();
  prime
      .add_option("--dtype", model.type,
                  "Type of --model's q and rows: bf16, f16, f32; auto: what "
                  "config.json says")
      ->capture_default_str();
  prime.add_option("--page", model.page_size, "Tokens a page, of --model")
      ->capture_default_str();
  const std::map<std::string, KernelKind> kernels = {
      {"store", KernelKind::kStore},   {"decode", KernelKind::kDecode},
      {"extend", KernelKind::kExtend}, {"merge", KernelKind::kMerge},
      {"gather", KernelKind::kGather},
  };
  prime
      .add_option("--kernels", model.kernels,
                  "Kernels of --model: store, decode, extend, merge, gather "
                  "(default: all)")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(kernels));
}

}  // namespace

void AddPrime(CLI::App& app, Command& command) {
  auto flags = std::make_shared<PrimeFlags>();
  CLI::App* prime = app.add_subcommand(
      "prime", "Compiles SPECs for GPUs into a cache folder; needs no GPU");
  prime->add_option("specs", flags->specs,
                    "SPECs, or manifests with one SPEC a line, then perhaps "
                    "a tile and score=FILE");
  AddModelFlags(*prime, flags->model);
  prime
      ->add_option("--gpus", flags->gpus,
                   "GPUs such as sm_80,sm_90a; host-sm_80 for the host target")
      ->delimiter(',');
  prime->add_option("--score", flags->score,
                    "MLIR file of the score function of attention SPECs that "
                    "name none");
  prime->add_option("--tune-db", flags->tune_db,
                    "Winners that `kvforge tune --export` wrote: their tiles "
                    "are compiled beside the selector's (default: "
                    "KVFORGE_TUNE_DB)");
  prime->add_option("-j", flags->threads, "Threads (default: cores)")
      ->check(CLI::PositiveNumber);
  prime->add_option("--shard", flags->shard,
                    "i/n: this machine's part of the work, i from 0 to n - 1; "
                    "`kvforge cache import` puts the folders together");
  prime->add_flag("--recompile", flags->recompile,
                  "Compile also what the folder already has");
  prime->add_flag("--dry-run,--list-specs", flags->dry_run,
                  "Print the manifest and compile nothing; with --gpus, check "
                  "that each GPU can have each SPEC");
  prime->add_flag("--json", flags->json,
                  "Print JSON; with --model also every layer and its scales");
  AddCompileFlags(*prime, flags->engine);
  prime->callback([&command, flags] {
    command = [flags] {
      const absl::StatusOr<int> code = Prime(*flags);
      return code.ok() ? *code : Fail(code.status());
    };
  });
}

}  // namespace kvforge
