// `kvforge run`: store, extend, decode and merge on generated data, each format
// against the double-precision reference.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "compiler/formats/format.h"
#include "tools/case_generator.h"
#include "tools/case_runner.h"
#include "tools/columns.h"
#include "tools/command.h"

namespace kvforge {
namespace {

struct RunFlags {
  EngineFlags engine;
  std::vector<std::string> formats;
  CaseOptions options;
  bool json = false;
};

CaseOptions DefaultCase() {
  CaseOptions options;
  options.head_dim = 128;
  options.num_q_heads = 8;
  options.num_kv_heads = 2;
  options.page_size = 16;
  options.q_lens = {1, 4, 2};
  options.kv_lens = {37, 4, 150};
  return options;
}

int Run(const RunFlags& flags) {
  const absl::StatusOr<std::unique_ptr<Engine>> engine =
      EngineFromFlags(flags.engine);
  if (!engine.ok()) return Fail(engine.status());
  std::vector<std::string> formats = flags.formats;
  if (formats.empty()) {
    for (const KvFormat& format : kFormats) {
      if (format.served) formats.push_back(std::string(format.name));
    }
  }
  std::vector<std::vector<std::string>> table = {
      {"format", "kernel", "layout", "out error", "lse error", "ms", ""}};
  nlohmann::json json = nlohmann::json::array();
  bool failed = false;
  for (const std::string& format : formats) {
    CaseOptions options = flags.options;
    options.name = options.format = format;
    options.seed = flags.engine.seed;
    const absl::StatusOr<AttentionCase> problem = GenerateCase(options);
    if (!problem.ok()) return Fail(problem.status());
    const CaseRun run = RunCase(**engine, *problem, 0, 2);
    if (run.refused) {
      for (const KernelResult& result : run.results) {
        if (result.refused) return Fail(result.status, kExitRefused);
      }
    }
    failed |= run.failed;
    for (const KernelResult& result : run.results) {
      const bool attention = result.kernel != "store";
      const auto part = [&](double ratio) {
        if (!attention) return std::string(result.status.ok() ? "exact" : "");
        return absl::StrFormat("%.3f", ratio);
      };
      table.push_back(
          {format, result.kernel, result.layout, part(result.errors.out_ratio),
           attention ? part(result.errors.lse_ratio) : "",
           absl::StrFormat("%.2f", result.run_ms),
           result.status.ok() ? "ok" : std::string(result.status.message())});
      json.push_back({{"format", format},
                      {"kernel", result.kernel},
                      {"layout", result.layout},
                      {"ok", result.status.ok()},
                      {"message", std::string(result.status.message())},
                      {"out_ratio", result.errors.out_ratio},
                      {"lse_ratio", result.errors.lse_ratio},
                      {"run_ms", result.run_ms}});
    }
  }
  if (flags.json) {
    PrintJson(json);
  } else {
    const EngineStatistics statistics = (*engine)->statistics();
    std::printf("%s", Columns(table).c_str());
    std::printf(
        "errors as parts of their bounds; %d compiles in %.0f ms, %d from "
        "cache, on %s %s\n",
        static_cast<int>(statistics.compiles), statistics.compile_ms,
        static_cast<int>(statistics.disk_hits), flags.engine.target.c_str(),
        std::string((*engine)->gpu().name).c_str());
  }
  return failed ? kExitFailed : kExitOk;
}

}  // namespace

void AddRun(CLI::App& app, Command& command) {
  auto flags = std::make_shared<RunFlags>();
  flags->options = DefaultCase();
  CLI::App* run = app.add_subcommand(
      "run", "A small end-to-end on generated data, against the reference");
  run->add_option("--format", flags->formats,
                  "Formats to run (default: every served one)")
      ->delimiter(',');
  run->add_option("--head-dim", flags->options.head_dim)->capture_default_str();
  run->add_option("--q-heads", flags->options.num_q_heads)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  run->add_option("--kv-heads", flags->options.num_kv_heads)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  run->add_option("--page-size", flags->options.page_size)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  run->add_option("--q-lens", flags->options.q_lens,
                  "Query tokens of each sequence")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  run->add_option("--kv-lens", flags->options.kv_lens,
                  "Cached tokens of each sequence")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  run->add_flag("--json", flags->json, "Print JSON");
  AddEngineFlags(*run, flags->engine);
  run->callback(
      [&command, flags] { command = [flags] { return Run(*flags); }; });
}

}  // namespace kvforge
