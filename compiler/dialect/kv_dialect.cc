#include "compiler/dialect/kv_dialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"

namespace kvforge::kv {
namespace {

// `d` or `d/16`, kept as its spelling.
mlir::ParseResult parseDimName(mlir::OpAsmParser& parser,
                               mlir::StringAttr& attr) {
  llvm::StringRef letter;
  int block = 1;
  const llvm::SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&letter)) return mlir::failure();
  std::string text = letter.str();
  if (mlir::succeeded(parser.parseOptionalSlash())) {
    if (parser.parseInteger(block)) return mlir::failure();
    text += "/" + std::to_string(block);
  }
  if (!ParseDim(text)) {
    return parser.emitError(loc)
           << "'" << text << "' is no dimension; dimensions: m, n, d, e, h, s";
  }
  attr = parser.getBuilder().getStringAttr(text);
  return mlir::success();
}

void printDimName(mlir::OpAsmPrinter& printer, mlir::Operation*,
                  mlir::StringAttr attr) {
  printer << attr.getValue();
}

}  // namespace
}  // namespace kvforge::kv

#include "compiler/dialect/KvDialect.cc.inc"

#define GET_OP_CLASSES
#include "compiler/dialect/KvOps.cc.inc"

namespace kvforge::kv {

void KvDialect::initialize() {
  RegisterTypes();
  addOperations<
#define GET_OP_LIST
#include "compiler/dialect/KvOps.cc.inc"
      >();
}

}  // namespace kvforge::kv
