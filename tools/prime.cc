// `kvforge prime`: compiles SPECs for GPUs into a cache folder, without a GPU.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "compiler/tile/tile_selector.h"
#include "kernels/decode.h"
#include "runtime/base/file.h"
#include "runtime/base/status_macros.h"
#include "tools/command.h"
#include "tools/prime_manifest.h"
#include "tools/progress.h"

namespace kvforge {
namespace {

// What one compile may take at its peak: bounds the number of threads.
constexpr int64_t kCompileBytes = int64_t{512} << 20;

struct PrimeFlags {
  EngineFlags engine;
  std::vector<std::string> specs;
  std::vector<std::string> gpus;
  std::string score;  // file of a score function; "" = none
  int threads = 0;    // 0 = cores
  std::string shard;
  bool recompile = false;
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
        absl::StrCat("--shard ", text,
                     " is no part of a whole; i/n with 0 <= i < n is "
                     "supported; use 0/4 to 3/4 for four machines"));
  }
  return shard;
}

// Every SPEC for every GPU, each once.
// Score functions of the SPECs become known to `engine`.
absl::StatusOr<std::vector<PrimeJob>> PlanJobs(const PrimeFlags& flags,
                                               Engine& engine) {
  ASSIGN_OR_RETURN(const std::vector<SpecLine> lines, ReadSpecs(flags.specs));
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
  ASSIGN_OR_RETURN(const Shard shard, ParseShard(flags.shard));
  std::vector<PrimeJob> jobs;
  int64_t number = 0;
  for (const std::string& gpu : flags.gpus) {
    ASSIGN_OR_RETURN(const PrimeTarget target, ParsePrimeTarget(gpu));
    for (const std::string& spec : unique) {
      if (number++ % shard.count == shard.index) jobs.push_back({spec, target});
    }
  }
  return jobs;
}

int ThreadCount(int asked, size_t jobs) {
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const int64_t free_bytes =
      int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  int64_t threads = asked > 0 ? asked : cores;
  threads = std::min(threads, std::max<int64_t>(1, free_bytes / kCompileBytes));
  return static_cast<int>(
      std::clamp<int64_t>(threads, 1, std::max<size_t>(jobs, 1)));
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
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(job.spec, absl::MaxSplits(' ', 1));
  ASSIGN_OR_RETURN(const KernelSpec spec, ParseSpec(parts.first));
  if (parts.second.empty()) {
    return engine.Compile(spec, *job.target.gpu, job.target.target, source);
  }
  ASSIGN_OR_RETURN(const Tile tile, ParseTile(parts.second));
  RETURN_IF_ERROR(CheckTile(spec, tile, *job.target.gpu));
  return engine.Compile(spec, tile, *job.target.gpu, job.target.target, source);
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
        outcome.kernels.push_back(Describe(job.target, **entry));
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

absl::StatusOr<int> Prime(const PrimeFlags& flags) {
  ASSIGN_OR_RETURN(EngineOptions options, OptionsFromFlags(flags.engine));
  options.recompile = options.recompile || flags.recompile;
  options.cache_byte_cap = 0;  // what was asked for stays, however large
  RETURN_IF_ERROR(MakeFolders(flags.engine.cache));
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                   Engine::Create(std::move(options)));
  ASSIGN_OR_RETURN(const std::vector<PrimeJob> jobs, PlanJobs(flags, *engine));
  const absl::Time start = absl::Now();
  const PrimeOutcome outcome =
      RunJobs(*engine, jobs, ThreadCount(flags.threads, jobs.size()));
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  std::string manifest = "manifest.json";
  if (!flags.shard.empty()) {
    ASSIGN_OR_RETURN(const Shard shard, ParseShard(flags.shard));
    manifest =
        absl::StrCat("manifest-", shard.index, "-of-", shard.count, ".json");
  }
  RETURN_IF_ERROR(
      UpdatePrimeManifest(flags.engine.cache, manifest, outcome.kernels));
  if (flags.json) {
    PrintJson(nlohmann::json{{"compiled", outcome.compiled},
                             {"found", outcome.found},
                             {"failures", outcome.failures},
                             {"seconds", seconds}});
  } else {
    for (const std::string& failure : outcome.failures) {
      std::printf("failed: %s\n", failure.c_str());
    }
    std::printf("%d compiled, %d found, %d failed in %.1f s\n",
                outcome.compiled, outcome.found,
                static_cast<int>(outcome.failures.size()), seconds);
  }
  return outcome.failures.empty() ? kExitOk : kExitFailed;
}

}  // namespace

void AddPrime(CLI::App& app, Command& command) {
  auto flags = std::make_shared<PrimeFlags>();
  CLI::App* prime = app.add_subcommand(
      "prime", "Compiles SPECs for GPUs into a cache folder; needs no GPU");
  prime
      ->add_option("specs", flags->specs,
                   "SPECs, or manifests with one SPEC a line, then perhaps "
                   "a tile and score=FILE")
      ->required();
  prime
      ->add_option("--gpus", flags->gpus,
                   "GPUs such as sm_80,sm_90a; host-sm_80 for the host target")
      ->delimiter(',')
      ->required();
  prime->add_option("--score", flags->score,
                    "MLIR file of the score function of attention SPECs that "
                    "name none");
  prime->add_option("-j", flags->threads, "Threads (default: cores)")
      ->check(CLI::PositiveNumber);
  prime->add_option("--shard", flags->shard,
                    "i/n: this machine's part of the work, i from 0");
  prime->add_flag("--recompile", flags->recompile,
                  "Compile also what the folder already has");
  prime->add_flag("--json", flags->json, "Print JSON");
  AddCompileFlags(*prime, flags->engine);
  prime->get_option("--cache")->required();
  prime->callback([&command, flags] {
    command = [flags] {
      const absl::StatusOr<int> code = Prime(*flags);
      return code.ok() ? *code : Fail(code.status());
    };
  });
}

}  // namespace kvforge
