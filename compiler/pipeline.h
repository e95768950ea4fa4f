// The pass list, in order.
#ifndef KVFORGE_COMPILER_PIPELINE_H_
#define KVFORGE_COMPILER_PIPELINE_H_

#include <string>

#include "mlir/Pass/PassManager.h"

namespace kvforge {

// How far to go; each includes the ones before it.
enum class Stage { kIr, kPlaced, kCodec, kTiled };

// Adds the passes up to `stage` to a manager of modules. `gpu` is a target's
// name; `tile` is Tile::Text(), or empty to let the selector choose.
void AddPasses(mlir::OpPassManager& manager, Stage stage,
               const std::string& gpu, const std::string& tile);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_PIPELINE_H_
