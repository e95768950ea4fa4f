// `kvforge tile`: the tile of a SPEC on a GPU and the ladder it was chosen
// from.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "compiler/spec/kernel_spec.h"
#include "compiler/tile/tile_selector.h"
#include "tools/columns.h"
#include "tools/command.h"

namespace kvforge {
namespace {

struct TileFlags {
  std::string spec;
  std::string gpu;
  bool json = false;
};

nlohmann::json ToJson(const TileCandidate& candidate) {
  return {{"block_m", candidate.tile.block_m},
          {"block_n", candidate.tile.block_n},
          {"stages", candidate.tile.stages},
          {"warps", candidate.tile.warps},
          {"shared_bytes", candidate.shared_bytes},
          {"registers", candidate.registers}};
}

void PrintLadder(const KernelSpec& spec, const GpuTarget& gpu,
                 const std::vector<TileCandidate>& ladder,
                 const absl::StatusOr<TileCandidate>& choice) {
  nlohmann::json json = {{"spec", spec.Text()},
                         {"gpu", std::string(gpu.name)},
                         {"shared_bytes_limit", gpu.shared_bytes_opt_in}};
  json["chosen"] = choice.ok() ? ToJson(*choice) : nlohmann::json();
  if (!choice.ok()) json["refused"] = std::string(choice.status().message());
  for (const TileCandidate& candidate : ladder) {
    nlohmann::json rung = ToJson(candidate);
    rung["refused"] = candidate.refused;
    json["ladder"].push_back(rung);
  }
  PrintJson(json);
}

void PrintText(const KernelSpec& spec, const GpuTarget& gpu,
               const std::vector<TileCandidate>& ladder,
               const TileCandidate& choice) {
  std::printf("%s on %s: %s, %d of %d shared bytes, %d registers\n",
              spec.Text().c_str(), std::string(gpu.name).c_str(),
              choice.tile.Text().c_str(), choice.shared_bytes,
              gpu.shared_bytes_opt_in, choice.registers);
  std::vector<std::vector<std::string>> rows = {
      {"tile", "shared bytes", "registers", ""}};
  for (const TileCandidate& candidate : ladder) {
    const bool chosen = candidate.tile == choice.tile;
    rows.push_back({candidate.tile.Text(), absl::StrCat(candidate.shared_bytes),
                    absl::StrCat(candidate.registers),
                    chosen                      ? "chosen"
                    : candidate.refused.empty() ? "fits"
                                                : candidate.refused});
  }
  std::printf("%s", Columns(rows).c_str());
}

int ShowTile(const TileFlags& flags) {
  const absl::StatusOr<KernelSpec> spec = ParseSpec(flags.spec);
  if (!spec.ok()) return Fail(spec.status());
  const absl::StatusOr<const GpuTarget*> gpu = FindTarget(flags.gpu);
  if (!gpu.ok()) return Fail(gpu.status());
  const std::vector<TileCandidate> ladder = TileLadder(*spec, **gpu);
  const absl::StatusOr<TileCandidate> choice = SelectTile(*spec, **gpu);
  if (flags.json) {
    PrintLadder(*spec, **gpu, ladder, choice);
    return choice.ok() ? kExitOk : kExitRefused;
  }
  if (!choice.ok()) return Fail(choice.status());
  PrintText(*spec, **gpu, ladder, *choice);
  return kExitOk;
}

}  // namespace

void AddTile(CLI::App& app, Command& command) {
  auto flags = std::make_shared<TileFlags>();
  CLI::App* tile = app.add_subcommand(
      "tile", "The tile chosen for a SPEC on a GPU, and the ladder considered");
  tile->add_option("spec", flags->spec, "SPEC")->required();
  tile->add_option("--gpu", flags->gpu, "GPU")->required();
  tile->add_flag("--json", flags->json, "Print JSON");
  tile->callback(
      [&command, flags] { command = [flags] { return ShowTile(*flags); }; });
}

}  // namespace kvforge
