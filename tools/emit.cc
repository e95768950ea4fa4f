// `kvforge emit`: one stage of the compiler as text.
#include <cstdio>

#include "compiler/spec/kernel_spec.h"
#include "compiler/tile/tile_selector.h"
#include "kernels/jit_loader.h"
#include "runtime/base/status_macros.h"
#include "tools/command.h"

namespace kvforge {
namespace {

struct EmitFlags {
  EngineFlags engine;
  std::string spec;
  std::string tile;   // "" = the selector's
  std::string score;  // file of a score function; "" = none
  std::string stage = "cuda";
};

absl::StatusOr<std::string> Emit(const EmitFlags& flags) {
  ASSIGN_OR_RETURN(KernelSpec spec, ParseSpec(flags.spec));
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                   EngineFromFlags(flags.engine));
  if (!flags.score.empty()) {
    ASSIGN_OR_RETURN(spec.score, AddScoreFile(*engine, flags.score));
    RETURN_IF_ERROR(ValidateSpec(spec));
  }
  ASSIGN_OR_RETURN(const GpuTarget* gpu, FindTarget(flags.engine.gpu));
  Tile tile;
  if (flags.tile.empty()) {
    ASSIGN_OR_RETURN(const TileCandidate choice, SelectTile(spec, *gpu));
    tile = choice.tile;
  } else {
    ASSIGN_OR_RETURN(tile, ParseTile(flags.tile));
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const JitLibrary> jit, engine->Jit());
  JitRequest request;
  request.spec = spec.Text();
  request.tile = tile.Text();
  request.gpu = std::string(gpu->name);
  request.target = "cuda";
  request.overlay = engine->options().templates_dir;
  ASSIGN_OR_RETURN(request.score, engine->ScoreFunctionText(spec.score));
  return jit->Emit(request, flags.stage);
}

int RunEmit(const EmitFlags& flags) {
  const absl::StatusOr<std::string> text = Emit(flags);
  if (!text.ok()) return Fail(text.status());
  std::fputs(text->c_str(), stdout);
  return kExitOk;
}

}  // namespace

void AddEmit(CLI::App& app, Command& command) {
  auto flags = std::make_shared<EmitFlags>();
  CLI::App* emit =
      app.add_subcommand("emit", "Prints one stage of compiling a SPEC");
  emit->add_option("spec", flags->spec, "SPEC")->required();
  emit->add_option("--gpu", flags->engine.gpu, "GPU")->required();
  emit->add_option("--stage", flags->stage, "Stage to print")
      ->check(CLI::IsMember({"ir", "placed", "codec", "tiled", "cuda", "ptx"}))
      ->capture_default_str();
  emit->add_option("--tile", flags->tile,
                   "Tile such as 128x64/2/8 (default: the selector's)");
  emit->add_option("--score", flags->score,
                   "MLIR file of the SPEC's score function");
  AddCompileFlags(*emit, flags->engine);
  emit->callback(
      [&command, flags] { command = [flags] { return RunEmit(*flags); }; });
}

}  // namespace kvforge
