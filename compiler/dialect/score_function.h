// A user's score function: from MLIR text to a block of verified operations.
#ifndef KVFORGE_COMPILER_DIALECT_SCORE_FUNCTION_H_
#define KVFORGE_COMPILER_DIALECT_SCORE_FUNCTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

namespace kvforge {

// Loads the dialects that score functions are written in.
void LoadScoreDialects(mlir::MLIRContext& context);

// A module of one func.func @score, whose body VerifyScoreFunction accepts and
// of which nothing is unused. Any other text is kInvalidArgument, with the line
// and what to do. Text is refused by its words before MLIR's parser sees it:
// that parser trusts its input.
absl::StatusOr<mlir::OwningOpRef<mlir::ModuleOp>> ParseScoreFunction(
    absl::string_view text, mlir::MLIRContext& context);

// The body of what ParseScoreFunction gave.
mlir::Region& ScoreBody(mlir::ModuleOp module);

// The module as text without locations, names of values or spelling of the
// user, and the digest of that text, as a SPEC's key `score` has it.
std::string CanonicalScoreText(mlir::ModuleOp module);
std::string ScoreDigest(absl::string_view canonical_text);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_DIALECT_SCORE_FUNCTION_H_
