// `kvforge tune`: measures the tiles of SPECs on a GPU and keeps every timing.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/tile/tile_selector.h"
#include "runtime/base/digest.h"
#include "runtime/base/file.h"
#include "runtime/base/status_macros.h"
#include "runtime/tune/store.h"
#include "runtime/tune/winners.h"
#include "tools/command.h"
#include "tools/progress.h"
#include "tools/tune/candidate_runner.h"
#include "tools/tune/candidates.h"
#include "tools/tune/tune_report.h"

namespace kvforge {
namespace {

using tune::TuneReport;

struct TuneFlags {
  EngineFlags engine;
  std::vector<std::string> specs;
  std::vector<std::string> shapes;
  std::string db;
  std::string export_path;
  std::string json_path;
  std::string svg_path;
  bool check_only = false;
  bool frozen = false;
  bool retry_failed = false;
  bool no_grids = false;
  bool list_specs = false;
  int rounds = 0;
};

// One sequence and many for decode; a first prompt and a chunk over a long
// prefix for extend.
std::vector<TuneShape> DefaultShapes(const KernelSpec& spec) {
  if (spec.kernel == KernelKind::kDecode) {
    return {{1, 8, spec.q_max, 32768}, {64, 8, spec.q_max, 8192}};
  }
  return {{1, 8, 2048, 2048}, {1, 8, 2048, 32768}};
}

absl::StatusOr<std::vector<TuneShape>> Shapes(const TuneFlags& flags,
                                              const KernelSpec& spec) {
  std::vector<TuneShape> shapes;
  for (const std::string& text : flags.shapes) {
    ASSIGN_OR_RETURN(const TuneShape shape, ParseShape(text));
    if (spec.kernel == KernelKind::kDecode && shape.q_len > spec.q_max) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--shape ", text, ": ", spec.Text(), " decodes up to ", spec.q_max,
          " query tokens of a sequence; give q1 to q", spec.q_max,
          ", or tune a SPEC with q_max=", shape.q_len));
    }
    shapes.push_back(shape.Bucket());
    shapes.back().q_len = shape.q_len;
  }
  return shapes.empty() ? DefaultShapes(spec) : shapes;
}

TuneCandidate WithVersion(const Engine& engine, const KernelSpec& spec,
                          const CandidateParts& parts) {
  const absl::StatusOr<Tile> tile = ParseTile(parts.tile);
  const KeyFields key =
      engine.Key(spec, tile.value(), engine.gpu(),
                 engine.device() != nullptr ? "cuda" : "host");
  return {CandidateText(parts), KeyDigest(key)};
}

absl::StatusOr<TuneReport> TuneOne(Engine& engine, const TuneFlags& flags,
                                   const KernelSpec& spec,
                                   const TuneShape& shape, TuneStore* store) {
  TuneReport report;
  report.job = {engine.fingerprint(),
                std::string(engine.gpu().name),
                spec.Text(),
                shape.Bucket().Text(),
                {}};
  ASSIGN_OR_RETURN(const TileCandidate selected,
                   SelectTile(spec, engine.gpu()));
  report.selected = selected.tile.Text();
  ASSIGN_OR_RETURN(const std::vector<Tile> tiles,
                   tune::TunedTiles(spec, engine.gpu()));
  const bool with_grids = engine.device() != nullptr && !flags.no_grids;
  for (const CandidateParts& parts :
       tune::WithGrids(spec, engine.gpu(), tiles,
                       with_grids ? engine.multiprocessors() : 0, shape)) {
    report.job.candidates.push_back(WithVersion(engine, spec, parts));
  }
  SearchOptions options;
  options.frozen = flags.frozen;
  options.retry_failed = flags.retry_failed;
  TuneRunner runner;
  std::unique_ptr<tune::CandidateRunner> on_target;
  if (!flags.frozen) {
    ASSIGN_OR_RETURN(on_target, tune::CandidateRunner::Create(
                                    engine, spec, shape, !flags.check_only));
    runner = on_target->Runner();
    if (!flags.check_only) {
      // Of this kind of device: two of them are not timed at once.
      options.lock_path = absl::StrCat(
          flags.db, ".", Sha256Hex(engine.fingerprint()).substr(0, 8), ".lock");
    }
  }
  Progress progress(report.job.candidates.size());
  options.progress = [&](size_t done, const std::string& candidate) {
    progress.Step(done, absl::StrCat(report.job.spec, " ", candidate));
  };
  ASSIGN_OR_RETURN(report.result, Search(report.job, runner, store, options));
  if (flags.rounds > 0 && runner.time && report.result.winner &&
      report.result.winner->key.candidate != report.selected) {
    ASSIGN_OR_RETURN(report.turns.emplace(),
                     TimeInTurns(runner, report.result.winner->key.candidate,
                                 report.selected, flags.rounds, options));
  }
  return report;
}

// Winners of the kernels that this build makes; timings of others are left out.
absl::Status Export(Engine& engine, TuneStore& store, const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<TuneRecord> all,
                   store.Records("", "", ""));
  std::vector<TuneRecord> current;
  for (const TuneRecord& record : all) {
    const absl::StatusOr<KernelSpec> spec = ParseSpec(record.key.spec);
    const absl::StatusOr<const GpuTarget*> gpu = FindTarget(record.gpu);
    const absl::StatusOr<CandidateParts> parts =
        ParseCandidate(record.key.candidate);
    if (!spec.ok() || !gpu.ok() || !parts.ok()) continue;
    const absl::StatusOr<Tile> tile = ParseTile(parts->tile);
    if (!tile.ok() || KeyDigest(engine.Key(*spec, *tile, **gpu, "cuda")) !=
                          record.key.version) {
      continue;
    }
    current.push_back(record);
  }
  const Winners winners = WinnersOf(current);
  RETURN_IF_ERROR(WriteFileAtomically(path, winners.ToJson()));
  std::printf("%zu winners of %zu timings to %s; %zu are of other builds\n",
              winners.all().size(), current.size(), path.c_str(),
              all.size() - current.size());
  return absl::OkStatus();
}

absl::Status ListSpecs(const TuneFlags& flags,
                       const std::vector<KernelSpec>& specs) {
  ASSIGN_OR_RETURN(const GpuTarget* gpu, FindTarget(flags.engine.gpu));
  std::set<std::string> lines;
  for (const KernelSpec& spec : specs) {
    ASSIGN_OR_RETURN(const std::vector<Tile> tiles,
                     tune::TunedTiles(spec, *gpu));
    for (const Tile& tile : tiles) {
      lines.insert(absl::StrCat(spec.Text(), " ", tile.Text()));
    }
    ASSIGN_OR_RETURN(const CaseOptions options, tune::CaseFor(spec, 1));
    ASSIGN_OR_RETURN(const AttentionCase problem, GenerateCase(options));
    ASSIGN_OR_RETURN(const KernelSpec store,
                     CaseSpec(problem, KernelKind::kStore, spec.order));
    lines.insert(store.Text());
  }
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
  return absl::OkStatus();
}

absl::StatusOr<int> Tune(const TuneFlags& flags) {
  std::vector<KernelSpec> specs;
  ASSIGN_OR_RETURN(const std::vector<SpecLine> lines, ReadSpecs(flags.specs));
  for (const SpecLine& line : lines) {
    ASSIGN_OR_RETURN(specs.emplace_back(), ParseSpec(line.spec));
  }
  if (flags.list_specs) {
    RETURN_IF_ERROR(ListSpecs(flags, specs));
    return kExitOk;
  }
  const bool on_host = flags.engine.target == "host";
  if (on_host && !flags.check_only && !specs.empty()) {
    return absl::FailedPreconditionError(
        "tune: the CPU runs a GPU's text, and its times say nothing about one; "
        "--target host checks candidates and stores nothing; add --check-only, "
        "or tune on a GPU with --target cuda");
  }
  if (flags.db.empty() && !flags.check_only) {
    return absl::InvalidArgumentError(
        "tune: no table for the timings; --check-only needs none; add --db "
        "FILE, which is made where there is none");
  }
  std::unique_ptr<TuneStore> store;
  if (!flags.check_only) {
    ASSIGN_OR_RETURN(
        store, TuneStore::Open(flags.db, specs.empty() || flags.frozen
                                             ? TuneStore::Access::kRead
                                             : TuneStore::Access::kWrite));
  }
  EngineFlags engine_flags = flags.engine;
  if (specs.empty()) engine_flags.target = "host";  // exporting needs no GPU
  ASSIGN_OR_RETURN(EngineOptions options, OptionsFromFlags(engine_flags));
  options.tune_db.clear();
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                   Engine::Create(std::move(options)));
  std::vector<TuneReport> reports;
  bool all_right = true;
  for (const KernelSpec& spec : specs) {
    ASSIGN_OR_RETURN(std::vector<TuneShape> shapes, Shapes(flags, spec));
    // The case that is checked does not depend on the shape.
    if (flags.check_only) shapes.resize(1);
    for (const TuneShape& shape : shapes) {
      ASSIGN_OR_RETURN(TuneReport report,
                       TuneOne(*engine, flags, spec, shape, store.get()));
      std::printf("%s\n", tune::ToTable(report).c_str());
      std::fflush(stdout);
      for (const TuneRecord& record : report.result.records) {
        all_right = all_right && record.verdict != TuneVerdict::kWrong &&
                    record.verdict != TuneVerdict::kFailed;
      }
      reports.push_back(std::move(report));
    }
  }
  if (!flags.json_path.empty()) {
    nlohmann::json json = nlohmann::json::array();
    for (const TuneReport& report : reports) json.push_back(ToJson(report));
    RETURN_IF_ERROR(WriteFileAtomically(
        flags.json_path,
        json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace)));
  }
  if (!flags.svg_path.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(flags.svg_path, tune::ToSvg(reports)));
  }
  if (!flags.export_path.empty() && store != nullptr) {
    RETURN_IF_ERROR(Export(*engine, *store, flags.export_path));
  }
  return all_right ? kExitOk : kExitFailed;
}

}  // namespace

void AddTune(CLI::App& app, Command& command) {
  auto flags = std::make_shared<TuneFlags>();
  flags->engine.target = "cuda";
  CLI::App* tune = app.add_subcommand(
      "tune", "Measures tiles of decode and extend SPECs on a GPU");
  tune->add_option("specs", flags->specs,
                   "SPECs, or files with one a line; none: only --export");
  tune->add_option("--db", flags->db,
                   "Table (SQLite) that keeps every timing; what it has is not "
                   "measured again");
  tune->add_option("--shape", flags->shapes,
                   "bBATCH/hKV_HEADS/qTOKENS/kvTOKENS, rounded up to powers of "
                   "two (default: two of the kernel)");
  tune->add_option("--export", flags->export_path,
                   "File to write the table's winners to, for engines "
                   "(KVFORGE_TUNE_DB) and `kvforge prime --tune-db`");
  tune->add_flag("--frozen", flags->frozen,
                 "Measure nothing: report what the table has");
  tune->add_flag("--check-only", flags->check_only,
                 "Compile and check every candidate, time and store nothing; "
                 "also for --target host");
  tune->add_flag("--retry-failed", flags->retry_failed,
                 "Measure again what failed before");
  tune->add_option(
          "--rounds", flags->rounds,
          "Time the winner and the selector's tile again, in turns, so "
          "many times each (default: 0)")
      ->check(CLI::Range(0, 1000));
  tune->add_flag("--no-grids", flags->no_grids,
                 "Decode with the library's grid only");
  tune->add_flag("--list-specs", flags->list_specs,
                 "Print the SPECs and tiles that tuning on --gpu needs, for "
                 "`kvforge prime`");
  tune->add_option("--json", flags->json_path, "File to write the report to");
  tune->add_option("--svg", flags->svg_path,
                   "File to draw heat maps of block_m by block_n in");
  AddEngineFlags(*tune, flags->engine);
  tune->callback([&command, flags] {
    command = [flags] {
      const absl::StatusOr<int> code = Tune(*flags);
      return code.ok() ? *code : Fail(code.status());
    };
  });
}

}  // namespace kvforge
