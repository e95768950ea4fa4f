// A SPEC as IR: what the kernel computes, as one would write it on paper, with
// every code dequantized before it is used.
#ifndef KVFORGE_COMPILER_DIALECT_BUILD_IR_H_
#define KVFORGE_COMPILER_DIALECT_BUILD_IR_H_

#include "compiler/spec/kernel_spec.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

namespace kvforge {

// A module with one kv.kernel named after the spec's kernel. `context` has the
// kv dialect loaded. Any format of kFormats can be built, served or not.
// `score`: where the spec has a score function, its body (score_function.h).
mlir::OwningOpRef<mlir::ModuleOp> BuildIr(const KernelSpec& spec,
                                          mlir::MLIRContext& context,
                                          mlir::Region* score = nullptr);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_DIALECT_BUILD_IR_H_
