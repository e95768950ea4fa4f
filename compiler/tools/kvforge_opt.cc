// kvforge-opt: runs kv passes on text, for tests and for looking at one pass.
#include "compiler/dialect/kv_dialect.h"
#include "compiler/passes/passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char** argv) {
  mlir::DialectRegistry registry;
  registry.insert<kvforge::kv::KvDialect, mlir::arith::ArithDialect,
                  mlir::math::MathDialect>();
  kvforge::registerKvPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "kvforge pass driver\n", registry));
}
