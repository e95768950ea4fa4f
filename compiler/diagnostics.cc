#include "compiler/diagnostics.h"

#include "absl/strings/str_cat.h"

namespace kvforge {

void EmitStatus(mlir::Operation* op, const absl::Status& status) {
  mlir::InFlightDiagnostic error = op->emitError();
  error << View(status.message());
  error.getUnderlyingDiagnostic()->getMetadata().push_back(
      mlir::DiagnosticArgument(static_cast<int64_t>(status.code())));
}

absl::StatusOr<KernelSpec> SpecOf(kv::KernelOp kernel) {
  if (!kernel.getSpec()) {
    return absl::InvalidArgumentError(
        "kv.kernel has no spec; sizes and types come from one; write "
        "spec(\"decode/bf16/d128/g4/page16/bf16\") after the kernel's name");
  }
  return ParseSpec(View(*kernel.getSpec()));
}

absl::Status NoFunction(absl::string_view verb, absl::string_view what,
                        const GpuTarget& target, const std::string& supported) {
  return absl::UnimplementedError(
      absl::StrCat("no device function ", verb, " ", what, " exactly on ",
                   target.name, "; elements that have one: ", supported,
                   "; use a format of one of these"));
}

DiagnosticCollector::DiagnosticCollector(mlir::MLIRContext* context)
    : handler_(context, [this](mlir::Diagnostic& diagnostic) {
        if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error) {
          return mlir::failure();
        }
        if (messages_.empty() && !diagnostic.getMetadata().empty()) {
          code_ = static_cast<absl::StatusCode>(
              diagnostic.getMetadata()[0].getAsInteger());
        }
        absl::StrAppend(&messages_, messages_.empty() ? "" : "\n",
                        diagnostic.str());
        return mlir::success();
      }) {}

absl::Status DiagnosticCollector::Failure(absl::string_view what) const {
  if (messages_.empty()) {
    return absl::InternalError(absl::StrCat(what, " failed without a message"));
  }
  return absl::Status(code_, messages_);
}

}  // namespace kvforge
