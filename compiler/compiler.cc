#include "compiler/compiler.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/diagnostics.h"
#include "compiler/dialect/build_ir.h"
#include "compiler/dialect/score_function.h"
#include "compiler/emit/cuda_emitter.h"
#include "compiler/pipeline.h"
#include "compiler/tile/memory_model.h"
#include "llvm/Support/raw_ostream.h"
#include "mlir/IR/MLIRContext.h"
#include "runtime/base/shown.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

// One compilation: a context of its own, so that calls need no lock.
class Compilation {
 public:
  explicit Compilation(const GpuTarget& target)
      : target_(target),
        context_(mlir::MLIRContext::Threading::DISABLED),
        diagnostics_(&context_) {
    context_.loadDialect<kv::KvDialect>();
  }

  absl::Status Build(const KernelSpec& spec, absl::string_view score) {
    if (spec.score.empty()) {
      module_ = BuildIr(spec, context_);
      return absl::OkStatus();
    }
    if (score.empty()) {
      return absl::NotFoundError(absl::StrCat(
          "the text of score function ", spec.score,
          " is not known; compiling needs it, a cached kernel does not; give "
          "it to the engine, or to the command with --score"));
    }
    LoadScoreDialects(context_);
    ASSIGN_OR_RETURN(const mlir::OwningOpRef<mlir::ModuleOp> function,
                     ParseScoreFunction(score, context_));
    const std::string digest = ScoreDigest(CanonicalScoreText(*function));
    if (digest != spec.score) {
      return absl::InvalidArgumentError(
          absl::StrCat("the SPEC asks for score function ", spec.score,
                       "; the text that was given is ", digest,
                       "; give the one's text or "
                       "the other's digest"));
    }
    module_ = BuildIr(spec, context_, &ScoreBody(*function));
    return absl::OkStatus();
  }

  // `tile` with block_m 0 leaves the choice to the selector.
  absl::Status RunTo(Stage stage, const Tile& tile) {
    mlir::PassManager manager(&context_);
    AddPasses(manager, stage, std::string(target_.name),
              tile.block_m ? tile.Text() : "");
    if (mlir::failed(manager.run(*module_))) {
      return diagnostics_.Failure("kernel pipeline");
    }
    return absl::OkStatus();
  }

  kv::KernelOp Kernel() {
    return *module_->getBody()->getOps<kv::KernelOp>().begin();
  }

  std::string Text() {
    std::string text;
    llvm::raw_string_ostream stream(text);
    Kernel()->print(stream);
    return text + "\n";
  }

 private:
  const GpuTarget& target_;
  mlir::MLIRContext context_;
  DiagnosticCollector diagnostics_;
  mlir::OwningOpRef<mlir::ModuleOp> module_;
};

}  // namespace

absl::StatusOr<KernelText> CompileToText(const KernelSpec& spec,
                                         const GpuTarget& target,
                                         const Tile& tile,
                                         absl::string_view score) {
  RETURN_IF_ERROR(ValidateSpec(spec));
  Compilation compilation(target);
  RETURN_IF_ERROR(compilation.Build(spec, score));
  RETURN_IF_ERROR(compilation.RunTo(Stage::kTiled, tile));
  KernelText text;
  ASSIGN_OR_RETURN(text.source, EmitCuda(compilation.Kernel(), target));
  ASSIGN_OR_RETURN(const Tile chosen,
                   ParseTile(View(*compilation.Kernel().getTile())));
  text.entry_symbol = kEntrySymbol;
  text.block_threads = BlockThreads(spec, chosen);
  text.shared_bytes = SharedBytes(spec, chosen);
  return text;
}

absl::StatusOr<std::string> EmitStage(const KernelSpec& spec,
                                      const GpuTarget& target, const Tile& tile,
                                      absl::string_view stage,
                                      absl::string_view score) {
  if (stage == "cuda") {
    ASSIGN_OR_RETURN(KernelText text, CompileToText(spec, target, tile, score));
    return std::move(text.source);
  }
  constexpr std::pair<absl::string_view, Stage> kStages[] = {
      {"ir", Stage::kIr},
      {"placed", Stage::kPlaced},
      {"codec", Stage::kCodec},
      {"tiled", Stage::kTiled}};
  for (const auto& [name, value] : kStages) {
    if (name != stage) continue;
    RETURN_IF_ERROR(ValidateSpec(spec));
    Compilation compilation(target);
    RETURN_IF_ERROR(compilation.Build(spec, score));
    RETURN_IF_ERROR(compilation.RunTo(value, tile));
    return compilation.Text();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("stage '", Shown(stage),
                   "' does not exist; stages: ir, placed, codec, tiled, cuda; "
                   "use one of these"));
}

absl::StatusOr<ScoreFunction> ReadScoreFunction(absl::string_view text) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  LoadScoreDialects(context);
  ASSIGN_OR_RETURN(const mlir::OwningOpRef<mlir::ModuleOp> module,
                   ParseScoreFunction(text, context));
  ScoreFunction function;
  function.text = CanonicalScoreText(*module);
  function.digest = ScoreDigest(function.text);
  return function;
}

}  // namespace kvforge
