// Constructors and registration of the kv passes (Passes.td).
#ifndef KVFORGE_COMPILER_PASSES_PASSES_H_
#define KVFORGE_COMPILER_PASSES_PASSES_H_

#include <memory>
#include <string>

#include "compiler/dialect/kv_dialect.h"
#include "mlir/Pass/Pass.h"

namespace kvforge {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/passes/Passes.h.inc"

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_PASSES_PASSES_H_
