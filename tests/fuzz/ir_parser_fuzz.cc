// The kv dialect's parser and verifiers take any text: a diagnostic, or a
// module whose text parses again, and which the passes take or refuse.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "compiler/dialect/kv_dialect.h"
#include "compiler/pipeline.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

namespace kvforge {
namespace {

mlir::MLIRContext& Context() {
  static mlir::MLIRContext* const context = [] {
    auto* created =
        new mlir::MLIRContext(mlir::MLIRContext::Threading::DISABLED);
    created->loadDialect<kv::KvDialect>();
    created->getDiagEngine().registerHandler([](mlir::Diagnostic&) {});
    return created;
  }();
  return *context;
}

// Text of a kernel in the kv dialect.
void CheckModule(llvm::StringRef text) {
  const mlir::ParserConfig config(&Context());
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceString<mlir::ModuleOp>(text, config);
  if (!module) return;
  std::string printed;
  llvm::raw_string_ostream(printed) << *module;
  if (!mlir::parseSourceString<mlir::ModuleOp>(printed, config)) std::abort();
  mlir::PassManager passes(&Context());
  AddPasses(passes, Stage::kTiled, "sm_90", "");
  static_cast<void>(passes.run(*module).succeeded());
}

// One function an entry that takes a text of its own: a parser of users' text
// gets a line here.
constexpr void (*kEntries[])(llvm::StringRef) = {CheckModule};

}  // namespace
}  // namespace kvforge

// MLIR's libraries are built without the sanitizer: they hand out memory of
// slabs that the allocators in our own objects have poisoned.
extern "C" const char* __asan_default_options() {
  return "allow_user_poisoning=0";
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const llvm::StringRef text(reinterpret_cast<const char*>(data), size);
  // The parser wants a terminating zero.
  const std::string copy = text.str();
  for (const auto& entry : kvforge::kEntries) entry(copy);
  return 0;
}
