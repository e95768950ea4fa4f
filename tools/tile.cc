// `kvforge tile`: the tile of a SPEC on a GPU and the ladder it was chosen
// from.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "compiler/spec/kernel_spec.h"
#include "compiler/tile/memory_model.h"
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

// What one multiprocessor holds at once, by the model's registers and bytes.
struct Occupancy {
  int blocks = 0;
  int warps = 0;  // of all blocks; in decode those that only copy, too
  const char* limit = "";
};

Occupancy OccupancyOf(const KernelSpec& spec, const GpuTarget& gpu,
                      const TileCandidate& candidate) {
  constexpr int kRegisterUnit = 8;  // a thread's, as warps are given them
  const int threads = BlockThreads(spec, candidate.tile);
  const int registers =
      (candidate.registers + kRegisterUnit - 1) / kRegisterUnit * kRegisterUnit;
  Occupancy occupancy;
  occupancy.blocks = gpu.warps_per_sm * 32 / threads;
  occupancy.limit = "warps";
  const auto narrow = [&](int blocks, const char* limit) {
    if (blocks >= occupancy.blocks) return;
    occupancy.blocks = blocks;
    occupancy.limit = limit;
  };
  narrow(gpu.registers_per_sm / (registers * threads), "registers");
  narrow(gpu.shared_bytes_per_sm /
             (candidate.shared_bytes + gpu.shared_bytes_reserved),
         "shared bytes");
  // The whole shared memory of a multiprocessor is no block's limit.
  if (occupancy.blocks == 0 && candidate.refused.empty()) occupancy.blocks = 1;
  occupancy.warps = occupancy.blocks * threads / 32;
  return occupancy;
}

nlohmann::json ToJson(const KernelSpec& spec, const GpuTarget& gpu,
                      const TileCandidate& candidate) {
  const Occupancy occupancy = OccupancyOf(spec, gpu, candidate);
  return {{"block_m", candidate.tile.block_m},
          {"block_n", candidate.tile.block_n},
          {"stages", candidate.tile.stages},
          {"warps", candidate.tile.warps},
          {"shared_bytes", candidate.shared_bytes},
          {"registers", candidate.registers},
          {"register_limit", RegisterLimit(spec, candidate.tile, gpu)},
          {"threads", BlockThreads(spec, candidate.tile)},
          {"blocks_per_sm", occupancy.blocks},
          {"warps_per_sm", occupancy.warps},
          {"occupancy_limit", occupancy.limit}};
}

void PrintLadder(const KernelSpec& spec, const GpuTarget& gpu,
                 const std::vector<TileCandidate>& ladder,
                 const absl::StatusOr<TileCandidate>& choice) {
  nlohmann::json json = {{"spec", spec.Text()},
                         {"gpu", std::string(gpu.name)},
                         {"shared_bytes_limit", gpu.shared_bytes_opt_in}};
  json["chosen"] = choice.ok() ? ToJson(spec, gpu, *choice) : nlohmann::json();
  if (!choice.ok()) json["refused"] = std::string(choice.status().message());
  for (const TileCandidate& candidate : ladder) {
    nlohmann::json rung = ToJson(spec, gpu, candidate);
    rung["refused"] = candidate.refused;
    json["ladder"].push_back(rung);
  }
  PrintJson(json);
}

void PrintText(const KernelSpec& spec, const GpuTarget& gpu,
               const std::vector<TileCandidate>& ladder,
               const TileCandidate& choice) {
  const Occupancy chosen = OccupancyOf(spec, gpu, choice);
  std::printf(
      "%s on %s: %s, %d of %d shared bytes, %d of %d registers a thread, %d "
      "threads, %d blocks (%d of %d warps) an SM, limited by %s\n",
      spec.Text().c_str(), std::string(gpu.name).c_str(),
      choice.tile.Text().c_str(), choice.shared_bytes, gpu.shared_bytes_opt_in,
      choice.registers, RegisterLimit(spec, choice.tile, gpu),
      BlockThreads(spec, choice.tile), chosen.blocks, chosen.warps,
      gpu.warps_per_sm, chosen.limit);
  std::printf("Fastest known first; the first that fits is chosen.\n");
  std::vector<std::vector<std::string>> rows = {
      {"tile", "shared bytes", "registers", "of", "blocks/SM", "warps/SM", ""}};
  bool behind = false;  // the chosen one
  for (const TileCandidate& candidate : ladder) {
    const bool is_choice = candidate.tile == choice.tile;
    const bool fits = candidate.refused.empty();
    const Occupancy occupancy = OccupancyOf(spec, gpu, candidate);
    rows.push_back({candidate.tile.Text(), absl::StrCat(candidate.shared_bytes),
                    absl::StrCat(candidate.registers),
                    absl::StrCat(RegisterLimit(spec, candidate.tile, gpu)),
                    fits ? absl::StrCat(occupancy.blocks) : "",
                    fits ? absl::StrCat(occupancy.warps) : "",
                    is_choice ? "chosen"
                    : !fits   ? candidate.refused
                    : behind  ? "fits, behind the chosen one"
                              : "fits"});
    behind = behind || is_choice;
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
