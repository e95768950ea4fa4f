// The kv dialect: operations (KvOps.td) and how to load them.
#ifndef KVFORGE_COMPILER_DIALECT_KV_DIALECT_H_
#define KVFORGE_COMPILER_DIALECT_KV_DIALECT_H_

#include "compiler/dialect/kv_types.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "compiler/dialect/KvDialect.h.inc"

#define GET_OP_CLASSES
#include "compiler/dialect/KvOps.h.inc"

#endif  // KVFORGE_COMPILER_DIALECT_KV_DIALECT_H_
