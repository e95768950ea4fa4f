#include "compiler/pipeline.h"

#include "compiler/passes/passes.h"

namespace kvforge {

void AddPasses(mlir::OpPassManager& manager, Stage stage,
               const std::string& gpu, const std::string& tile) {
  if (stage == Stage::kIr) return;
  mlir::OpPassManager& kernels = manager.nest<kv::KernelOp>();
  // First, so that a refusal names what was asked for.
  kernels.addPass(createKvVerifyTarget({.gpu = gpu}));
  // Needs dimensions only; after it each dot has at most one exact operand
  // scale.
  kernels.addPass(createKvPlaceScales());
  if (stage == Stage::kPlaced) return;
  // Needs the scales in place: it repays powers of two into them.
  kernels.addPass(createKvLowerCodec({.gpu = gpu}));
  if (stage == Stage::kCodec) return;
  // Last: it depends on the spec and the GPU only.
  kernels.addPass(createKvChooseTile({.gpu = gpu, .tile = tile}));
}

}  // namespace kvforge
