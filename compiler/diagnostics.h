// Between MLIR's diagnostics and absl::Status, and LLVM's strings and Abseil's.
#ifndef KVFORGE_COMPILER_DIAGNOSTICS_H_
#define KVFORGE_COMPILER_DIAGNOSTICS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/dialect/kv_dialect.h"
#include "compiler/spec/kernel_spec.h"
#include "compiler/target/target.h"
#include "mlir/IR/Diagnostics.h"

namespace kvforge {

inline absl::string_view View(llvm::StringRef text) {
  return {text.data(), text.size()};
}
inline llvm::StringRef View(absl::string_view text) {
  return {text.data(), text.size()};
}

// An error at `op` with the status's message; DiagnosticCollector gives it its
// code back.
void EmitStatus(mlir::Operation* op, const absl::Status& status);

// The kernel's `spec`, read and validated.
absl::StatusOr<KernelSpec> SpecOf(kv::KernelOp kernel);

// kUnimplemented: nothing `verb`s `what`, an element or an element with its
// block scale, exactly on `target`.
absl::Status NoFunction(absl::string_view verb, absl::string_view what,
                        const GpuTarget& target, const std::string& supported);

// Takes a context's errors while it lives.
class DiagnosticCollector {
 public:
  explicit DiagnosticCollector(mlir::MLIRContext* context);

  // All errors so far, one a line, with the code of the first; kInternal for
  // one that carries none, and if nothing was said about the failure of `what`.
  absl::Status Failure(absl::string_view what) const;

 private:
  std::string messages_;
  absl::StatusCode code_ = absl::StatusCode::kInternal;
  mlir::ScopedDiagnosticHandler handler_;
};

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_DIAGNOSTICS_H_
