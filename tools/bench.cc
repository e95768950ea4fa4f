// `kvforge bench`: the GPU's ceilings, then kernels beside them.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/file.h"
#include "runtime/base/status_macros.h"
#include "runtime/cuda/device.h"
#include "tools/bench/case_table.h"
#include "tools/bench/ceilings.h"
#include "tools/bench/picture.h"
#include "tools/bench/prepare_times.h"
#include "tools/bench/report.h"
#include "tools/bench/runners.h"
#include "tools/command.h"
#include "tools/prime_manifest.h"
#include "tools/progress.h"

namespace kvforge {
namespace {

using bench::BenchCase;
using bench::CaseKind;
using bench::CaseResult;
using bench::Report;

struct BenchFlags {
  EngineFlags engine;
  std::vector<std::string> patterns;
  bool list = false;
  bool list_specs = false;
  DecodeGrid grid = {0, 0};
  std::string tile;
  std::string json_path;
  std::string against_path;
  std::string svg_path;
  // In a child: which case is measured first; the parent's is -1.
  int child = -1;
};

// Fresh processes that prepare and fetch are measured in.
constexpr int kProcesses = 9;

// Where a case is measured.
enum class Place { kGpu, kChildOnGpu, kChild, kHere };

Place PlaceOf(const BenchCase& what) {
  switch (what.kind) {
    case CaseKind::kPrepare:
      return Place::kChildOnGpu;
    case CaseKind::kFetch:
      return Place::kChild;
    case CaseKind::kSpecialise:
      return Place::kHere;
    default:
      return Place::kGpu;
  }
}

// One line a kernel: its SPEC, and `tile` where it is to take that one.
void ListSpecs(const std::vector<BenchCase>& cases, const std::string& tile) {
  std::set<std::string> specs;
  for (const BenchCase& what : cases) {
    if (what.kind == CaseKind::kSpecialise) continue;
    for (const KernelSpec& spec : what.Specs()) {
      const bool attends = spec.kernel == KernelKind::kDecode ||
                           spec.kernel == KernelKind::kExtend;
      specs.insert(attends && !tile.empty()
                       ? absl::StrCat(spec.Text(), " ", tile)
                       : spec.Text());
    }
  }
  for (const std::string& spec : specs) std::printf("%s\n", spec.c_str());
}

absl::StatusOr<CaseResult> RunCase(bench::GpuRun& run, const BenchCase& what) {
  switch (what.kind) {
    case CaseKind::kDecode:
      return bench::RunDecodeCase(run, what);
    case CaseKind::kStore:
      return bench::RunStoreCase(run, what);
    case CaseKind::kExtend:
      return bench::RunExtendCase(run, what);
    case CaseKind::kLaunch:
      return bench::RunLaunchCase(run, what);
    case CaseKind::kPrepare:
    case CaseKind::kFetch:
    case CaseKind::kSpecialise:
      break;
  }
  return absl::InternalError("bench: a case that is measured elsewhere");
}

// A line on stderr for each case that is done, where no bar is shown: what was
// measured is not lost with a run that is stopped.
void LogResult(const BenchCase& what,
               const absl::StatusOr<CaseResult>& result) {
  if (isatty(STDERR_FILENO)) return;
  if (!result.ok()) {
    std::fprintf(stderr, "%s: %s\n", what.Name().c_str(),
                 std::string(result.status().message()).c_str());
    return;
  }
  std::fprintf(stderr, "%s: %.2f us\n", what.Name().c_str(),
               result->row.median);
}

// The numbers of the cases, those that share a pool one after the other.
std::vector<size_t> Order(const std::vector<BenchCase>& cases) {
  std::vector<size_t> order(cases.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::make_tuple(cases[a].head_dim, cases[a].format) <
           std::make_tuple(cases[b].head_dim, cases[b].format);
  });
  return order;
}

absl::Status NeedsGpuError(size_t cases, const absl::Status& status) {
  return absl::Status(
      status.code(),
      absl::StrCat("bench: ", cases,
                   " of the cases need a GPU: ", status.message(),
                   "; `kvforge bench specialise` and fetch need none"));
}

absl::Status RunOnGpu(const BenchFlags& flags,
                      const std::vector<BenchCase>& cases, Progress& progress,
                      size_t& done, Report& report) {
  EngineFlags engine_flags = flags.engine;
  engine_flags.target = "cuda";
  const absl::StatusOr<std::unique_ptr<Engine>> engine =
      EngineFromFlags(engine_flags);
  if (!engine.ok()) {
    return NeedsGpuError(cases.size(), engine.status());
  }
  std::optional<Tile> tile;
  if (!flags.tile.empty()) {
    ASSIGN_OR_RETURN(tile, ParseTile(flags.tile));
  }
  const DevicePtr& device = (*engine)->device();
  report.gpu = device->name();
  report.driver_cuda_version = device->api().version;
  ASSIGN_OR_RETURN(bench::Timer timer, bench::Timer::Create(device));
  progress.Step(done, "ceilings");
  ASSIGN_OR_RETURN(report.ceilings, bench::MeasureCeilings(**engine, timer));
  bench::PoolCache pools(**engine, cases);
  bench::GpuRun run = {**engine, timer, pools, flags.grid, tile};
  std::vector<CaseResult> results(cases.size());
  for (const size_t i : Order(cases)) {
    progress.Step(done++, cases[i].Name());
    absl::StatusOr<CaseResult> result = RunCase(run, cases[i]);
    LogResult(cases[i], result);
    if (result.ok()) {
      results[i] = *std::move(result);
    } else {
      results[i].name = cases[i].Name();
      results[i].error = std::string(result.status().message());
    }
  }
  std::move(results.begin(), results.end(), std::back_inserter(report.results));
  return absl::OkStatus();
}

absl::Status RunOnHost(const BenchFlags& flags,
                       const std::vector<BenchCase>& cases, Progress& progress,
                       size_t& done, Report& report) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                   EngineFromFlags(flags.engine));
  for (const BenchCase& what : cases) {
    progress.Step(done++, what.Name());
    ASSIGN_OR_RETURN(CaseResult result,
                     bench::RunSpecialiseCase(*engine, flags.engine.gpu, what));
    report.results.push_back(std::move(result));
  }
  return absl::OkStatus();
}

// Each of kProcesses children prepares all cases, beginning with another one:
// the first of a process pays for what the driver does once.
absl::Status RunInChildren(const BenchFlags& flags,
                           const std::vector<BenchCase>& cases,
                           Progress& progress, size_t& done, Report& report) {
  if (PlaceOf(cases[0]) == Place::kChildOnGpu) {
    const absl::StatusOr<DevicePtr> device = Device::Open(flags.engine.device);
    if (!device.ok()) return NeedsGpuError(cases.size(), device.status());
  }
  std::vector<std::string> command = {"/proc/self/exe", "bench"};
  for (const BenchCase& what : cases) command.push_back(what.Name());
  const auto add = [&](absl::string_view name, const std::string& value) {
    if (!value.empty()) command.push_back(absl::StrCat(name, "=", value));
  };
  add("--cache", flags.engine.cache);
  add("--templates", flags.engine.templates);
  add("--gpu", flags.engine.gpu);
  add("--tile", flags.tile);
  add("--device", absl::StrCat(flags.engine.device));
  std::vector<bench::PrepareTimes> runs;
  for (int i = 0; i < kProcesses; ++i) {
    progress.Step(done, absl::StrCat("process ", i + 1));
    std::vector<std::string> child = command;
    child.push_back(absl::StrCat("--child=", i % cases.size()));
    ASSIGN_OR_RETURN(bench::PrepareTimes times, bench::TimesOfChild(child));
    runs.push_back(std::move(times));
  }
  for (CaseResult& result : bench::CombineTimes(runs, cases)) {
    progress.Step(done++, result.name);
    report.results.push_back(std::move(result));
  }
  if (!runs[0].gpu.empty()) {
    report.gpu = runs[0].gpu;
    report.driver_cuda_version = runs[0].driver_cuda_version;
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunAsChild(const BenchFlags& flags,
                               std::vector<BenchCase> cases) {
  std::rotate(
      cases.begin(),
      cases.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(flags.child) %
                                             std::max<size_t>(cases.size(), 1)),
      cases.end());
  ASSIGN_OR_RETURN(const PrimeTarget target,
                   ParsePrimeTarget(flags.engine.gpu));
  EngineFlags engine_flags = flags.engine;
  engine_flags.gpu = std::string(target.gpu->name);
  engine_flags.target =
      !cases.empty() && PlaceOf(cases[0]) == Place::kChildOnGpu ? "cuda"
                                                                : "host";
  std::optional<Tile> tile;
  if (!flags.tile.empty()) {
    ASSIGN_OR_RETURN(tile, ParseTile(flags.tile));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                   EngineFromFlags(engine_flags));
  ASSIGN_OR_RETURN(
      const bench::PrepareTimes times,
      bench::TimePrepares(*engine, {target.gpu, target.target}, cases, tile));
  std::printf("%s", bench::ToJson(times).c_str());
  return kExitOk;
}

absl::StatusOr<Report> Measure(const BenchFlags& flags,
                               const std::vector<BenchCase>& cases) {
  std::map<Place, std::vector<BenchCase>> placed;
  for (const BenchCase& what : cases) placed[PlaceOf(what)].push_back(what);
  Report report;
  report.measured_at =
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  Progress progress(cases.size());
  size_t done = 0;
  for (const auto& [place, of_place] : placed) {
    RETURN_IF_ERROR(
        place == Place::kGpu ? RunOnGpu(flags, of_place, progress, done, report)
        : place == Place::kHere
            ? RunOnHost(flags, of_place, progress, done, report)
            : RunInChildren(flags, of_place, progress, done, report));
  }
  return report;
}

absl::StatusOr<int> Bench(const BenchFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<BenchCase> cases,
                   bench::SelectCases(flags.patterns));
  if (flags.list) {
    for (const BenchCase& what : cases) {
      std::printf("%s\n", what.Name().c_str());
    }
    return kExitOk;
  }
  if (flags.list_specs) {
    ListSpecs(cases, flags.tile);
    return kExitOk;
  }
  if (flags.child >= 0) return RunAsChild(flags, cases);
  // Read before anything is measured: a wrong file should not cost a run.
  Report before;
  if (!flags.against_path.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.against_path));
    ASSIGN_OR_RETURN(before, bench::ReportFromJson(text));
  }
  ASSIGN_OR_RETURN(const Report report, Measure(flags, cases));
  std::printf("%s", bench::ToTable(report).c_str());
  if (!flags.against_path.empty()) {
    std::printf("\n%s", bench::CompareReports(before, report).c_str());
  }
  if (!flags.json_path.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(flags.json_path, ToJson(report)));
  }
  if (!flags.svg_path.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(flags.svg_path, ToSvg(report)));
  }
  const bool failed = std::any_of(
      report.results.begin(), report.results.end(),
      [](const CaseResult& result) { return !result.error.empty(); });
  return failed ? kExitFailed : kExitOk;
}

}  // namespace

void AddBench(CLI::App& app, Command& command) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* bench = app.add_subcommand(
      "bench", "Speed of kernels on a GPU beside what its memory can do");
  bench->add_option("cases", flags->patterns,
                    "Cases: names, their beginnings up to a '/', or globs "
                    "(default: all but fetch and specialise)");
  bench->add_flag("--list", flags->list,
                  "Print the chosen cases and measure nothing");
  bench->add_flag("--list-specs", flags->list_specs,
                  "Print the SPECs they need, for `kvforge prime`");
  bench
      ->add_option("--blocks", flags->grid.blocks,
                   "Blocks of a decode launch (default: chosen)")
      ->check(CLI::PositiveNumber);
  bench
      ->add_option("--heads-per-block", flags->grid.heads_per_block,
                   "kv heads of a decode block (default: chosen)")
      ->check(CLI::PositiveNumber);
  bench->add_option("--tile", flags->tile,
                    "Tile of decode and extend, such as 8x128/4/8 (default: "
                    "chosen)");
  bench->add_option("--json", flags->json_path, "File to write the figures to");
  bench->add_option("--against", flags->against_path,
                    "An earlier --json file to compare with");
  bench->add_option("--svg", flags->svg_path,
                    "File to draw the roofline and the bandwidths in");
  bench->add_option("--device", flags->engine.device, "Ordinal of the GPU")
      ->capture_default_str();
  flags->engine.gpu = "sm_90";
  bench
      ->add_option("--gpu", flags->engine.gpu,
                   "GPU that specialise compiles for and fetch reads entries "
                   "of; see `kvforge gpus`")
      ->capture_default_str();
  bench->add_flag("--strict", flags->engine.strict,
                  "Compile nothing: a kernel that is in no cache is an error");
  AddCompileFlags(*bench, flags->engine);
  bench->add_option("--child", flags->child)->group("");
  bench->callback([&command, flags] {
    command = [flags] {
      const absl::StatusOr<int> code = Bench(*flags);
      return code.ok() ? *code : Fail(code.status());
    };
  });
}

}  // namespace kvforge
