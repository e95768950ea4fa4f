// What a user's score function may hold: operations of arith and math over f32,
// i32 and i1, in one table for the verifier and for the device text of each.
#ifndef KVFORGE_COMPILER_DIALECT_SCORE_OPS_H_
#define KVFORGE_COMPILER_DIALECT_SCORE_OPS_H_

#include <string>

#include "llvm/ADT/ArrayRef.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/Region.h"

namespace kvforge::kv {

// More would be printed into every score of an unrolled loop.
inline constexpr int kMaxScoreOps = 256;

// Demands of `function`, the body of `parent`: one block with the arguments
// (score: f32, q_position: i32, kv_position: i32, q_head: i32), operations of
// the table, no attribute that the table does not know, a terminator that
// returns one f32. Says what is wrong at the operation it is wrong with.
mlir::LogicalResult VerifyScoreFunction(mlir::Operation* parent,
                                        mlir::Region& function);

// Takes out operations whose results nothing uses.
void EraseUnusedScoreOps(mlir::Block& block);

// The device type of an f32, i32 or i1: "float", "i32", "bool".
llvm::StringRef ScoreTypeText(mlir::Type type);

// A verified operation, but for arith.constant, as a device expression of its
// operands' names.
std::string ScoreOpText(mlir::Operation* op,
                        llvm::ArrayRef<std::string> operands);

}  // namespace kvforge::kv

#endif  // KVFORGE_COMPILER_DIALECT_SCORE_OPS_H_
