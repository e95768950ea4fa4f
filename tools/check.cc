// `kvforge check`: recorded cases against this build's kernels.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/target/target.h"
#include "compiler/tile/tile_selector.h"
#include "kernels/decode.h"
#include "tools/attention_case.h"
#include "tools/case_runner.h"
#include "tools/command.h"

namespace kvforge {
namespace {

// Layouts of one case: two of each slot order, so that every kernel sees two.
constexpr int kDefaultLayouts = 4;

struct CheckFlags {
  EngineFlags engine;
  std::vector<std::string> files;
  bool allow_refused = false;
  bool list_specs = false;
  bool json = false;
  int layouts = kDefaultLayouts;
  bool other_tiles = false;
};

struct Tally {
  int passed = 0;
  int failed = 0;
  int refused = 0;
  int unreadable = 0;

  int Code(bool allow_refused) const {
    if (failed > 0) return kExitFailed;
    if (unreadable > 0) return kExitUnreadable;
    return refused > 0 && !allow_refused ? kExitRefused : kExitOk;
  }
};

// "store exact in 4 layouts; extend 0.31; decode 0.28": the largest error of
// each kernel as a part of its bound.
std::string Describe(const CaseRun& run) {
  std::vector<std::string> kernels;
  std::map<std::string, std::pair<double, double>> worst;
  std::set<std::string> stored;
  std::set<std::string> noted;  // a compile fails alike in every layout
  std::string notes;
  for (const KernelResult& result : run.results) {
    if (!result.status.ok()) {
      if (!noted.insert(std::string(result.status.message())).second) continue;
      absl::StrAppend(&notes, "\n    ", result.kernel, " ", result.layout,
                      result.refused ? ": refused: " : ": ",
                      result.status.message());
      continue;
    }
    if (result.kernel == "store") {
      stored.insert(result.layout);
      continue;
    }
    const std::string kernel = result.kernel.substr(0, result.kernel.find('='));
    if (worst.count(kernel) == 0) kernels.push_back(kernel);
    auto& [out, lse] = worst[kernel];
    out = std::max(out, result.errors.out_ratio);
    lse = std::max(lse, result.errors.lse_ratio);
  }
  std::string text = absl::StrCat("store exact in ", stored.size(), " layouts");
  for (const std::string& kernel : kernels) {
    absl::StrAppendFormat(&text, "; %s out %.3f lse %.3f", kernel,
                          worst[kernel].first, worst[kernel].second);
  }
  return text + notes;
}

absl::string_view Refusal(const CaseRun& run) {
  for (const KernelResult& result : run.results) {
    if (result.refused) return result.status.message();
  }
  return "";
}

nlohmann::json ToJson(const std::string& name, const std::string& verdict,
                      const CaseRun& run) {
  nlohmann::json results = nlohmann::json::array();
  for (const KernelResult& result : run.results) {
    results.push_back({{"kernel", result.kernel},
                       {"layout", result.layout},
                       {"ok", result.status.ok()},
                       {"refused", result.refused},
                       {"message", std::string(result.status.message())},
                       {"out_ratio", result.errors.out_ratio},
                       {"lse_ratio", result.errors.lse_ratio},
                       {"run_ms", result.run_ms}});
  }
  return {{"case", name}, {"verdict", verdict}, {"results", results}};
}

int ListSpecs(const CheckFlags& flags) {
  Tally tally;
  std::set<std::string> specs;
  for (const std::string& path : flags.files) {
    const absl::StatusOr<AttentionCase> problem = ReadCase(path);
    if (!problem.ok()) {
      Fail(problem.status(), kExitUnreadable);
      ++tally.unreadable;
      continue;
    }
    absl::Status refusal;
    std::set<std::string> needed;
    for (SlotOrder order : {SlotOrder::kNhd, SlotOrder::kHnd}) {
      for (KernelKind kernel :
           {KernelKind::kStore, KernelKind::kExtend, KernelKind::kDecode}) {
        const bool decode = kernel == KernelKind::kDecode;
        if (decode && !FitsDecode(*problem)) continue;
        const absl::StatusOr<KernelSpec> spec =
            CaseSpec(*problem, kernel, order);
        if (!spec.ok()) {
          refusal.Update(spec.status());
        } else {
          needed.insert(spec->Text());
          if (kernel != KernelKind::kExtend || !flags.other_tiles) continue;
          const auto gpu = FindTarget(flags.engine.gpu);
          if (!gpu.ok()) continue;
          for (const NamedTile& other : OtherExtendTiles(*spec, **gpu)) {
            needed.insert(absl::StrCat(spec->Text(), " ", other.tile.Text()));
          }
        }
      }
    }
    if (!refusal.ok()) {
      ++tally.refused;
      std::fprintf(stderr, "%s  refused: %s\n", problem->name.c_str(),
                   std::string(refusal.message()).c_str());
      continue;
    }
    specs.insert(needed.begin(), needed.end());
  }
  for (const std::string& spec : specs) std::printf("%s\n", spec.c_str());
  return tally.Code(flags.allow_refused);
}

int Check(const CheckFlags& flags) {
  if (flags.list_specs) return ListSpecs(flags);
  const absl::StatusOr<std::unique_ptr<Engine>> engine =
      EngineFromFlags(flags.engine);
  if (!engine.ok()) return Fail(engine.status());
  Tally tally;
  nlohmann::json cases = nlohmann::json::array();
  int index = 0;
  for (const std::string& path : flags.files) {
    const absl::StatusOr<AttentionCase> problem = ReadCase(path);
    if (!problem.ok()) {
      Fail(problem.status(), kExitUnreadable);
      ++tally.unreadable;
      continue;
    }
    const CaseRun run =
        RunCase(**engine, *problem, index++, flags.layouts, flags.other_tiles);
    std::string verdict = "passed";
    std::string line;
    if (run.failed) {
      ++tally.failed;
      verdict = "FAILED";
      line = Describe(run);
    } else if (run.refused) {
      ++tally.refused;
      verdict = "refused";
      line = std::string(Refusal(run));
    } else {
      ++tally.passed;
      line = Describe(run);
    }
    if (flags.json) {
      cases.push_back(ToJson(problem->name, verdict, run));
    } else {
      std::printf("%s  %s  %s\n", problem->name.c_str(), verdict.c_str(),
                  line.c_str());
      std::fflush(stdout);
    }
  }
  if (flags.json) {
    PrintJson(nlohmann::json{{"cases", cases},
                             {"passed", tally.passed},
                             {"failed", tally.failed},
                             {"refused", tally.refused},
                             {"unreadable", tally.unreadable}});
  } else {
    std::printf("%d passed, %d failed, %d refused\n", tally.passed,
                tally.failed, tally.refused);
  }
  return tally.Code(flags.allow_refused);
}

}  // namespace

void AddCheck(CLI::App& app, Command& command) {
  auto flags = std::make_shared<CheckFlags>();
  CLI::App* check = app.add_subcommand(
      "check", "Runs recorded cases; tests/golden/README.md has their form");
  check->add_option("files", flags->files, "Case files (*.safetensors)")
      ->required();
  check->add_flag("--allow-refused", flags->allow_refused,
                  "Exit 0 although a case is not served");
  check->add_flag("--list-specs", flags->list_specs,
                  "Print the SPECs the cases need, for `kvforge prime`");
  check
      ->add_option("--layouts", flags->layouts,
                   "Memory layouts to run each case in")
      ->check(CLI::Range(2, static_cast<int>(std::size(kCaseLayouts))))
      ->capture_default_str();
  check->add_flag("--all-tiles", flags->other_tiles,
                  "Extend also in tiles of kinds the selector does not choose");
  check->add_flag("--json", flags->json, "Print JSON");
  check->footer(
      "A number is the largest error as a part of its bound.\n"
      "Exit: 0 passed, 1 mismatch, 2 unreadable file, 3 refused, 4 no engine.");
  AddEngineFlags(*check, flags->engine);
  check->callback(
      [&command, flags] { command = [flags] { return Check(*flags); }; });
}

}  // namespace kvforge
