#include "runtime/host/host_module.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"

namespace kvforge {
namespace {

absl::Status LoadError(llvm::Error error) {
  return absl::InvalidArgumentError(absl::StrCat(
      "host module: the object cannot be loaded: ",
      llvm::toString(std::move(error)),
      "; an object of CompileHostObject for this processor family can be"
      "; compile the text again"));
}

llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> MakeJit() {
  static const bool initialized = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)initialized;
  llvm::orc::LLJITBuilder builder;
  // The object sees the symbols that it is given, none of the process.
  builder.setLinkProcessSymbolsByDefault(false);
  builder.setPlatformSetUp(llvm::orc::setUpInactivePlatform);
  return builder.create();
}

llvm::Error DefineSymbols(llvm::orc::LLJIT& jit) {
  llvm::orc::SymbolMap symbols;
  for (const HostSymbol& symbol : HostSymbols()) {
    symbols[jit.mangleAndIntern(symbol.name)] = {
        llvm::orc::ExecutorAddr::fromPtr(symbol.address),
        llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  }
  return jit.getMainJITDylib().define(llvm::orc::absoluteSymbols(symbols));
}

// The int of that name, or -1.
int ReadConstant(llvm::orc::LLJIT& jit, const char* name) {
  llvm::Expected<llvm::orc::ExecutorAddr> address = jit.lookup(name);
  if (!address) {
    llvm::consumeError(address.takeError());
    return -1;
  }
  return *address->toPtr<const int*>();
}

}  // namespace

struct HostModule::Code {
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

HostModule::HostModule(std::unique_ptr<Code> code) : code_(std::move(code)) {}
HostModule::~HostModule() = default;

absl::StatusOr<std::unique_ptr<HostModule>> HostModule::Load(
    absl::string_view object, absl::string_view entry_symbol) {
  llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> jit = MakeJit();
  if (!jit) return LoadError(jit.takeError());
  if (llvm::Error error = DefineSymbols(**jit)) {
    return LoadError(std::move(error));
  }
  std::unique_ptr<llvm::MemoryBuffer> buffer =
      llvm::MemoryBuffer::getMemBufferCopy(
          llvm::StringRef(object.data(), object.size()), "kernel.o");
  if (llvm::Error error = (*jit)->addObjectFile(std::move(buffer))) {
    return LoadError(std::move(error));
  }
  llvm::Expected<llvm::orc::ExecutorAddr> entry =
      (*jit)->lookup(llvm::StringRef(entry_symbol.data(), entry_symbol.size()));
  if (!entry) return LoadError(entry.takeError());

  auto code = std::make_unique<Code>();
  code->jit = std::move(*jit);
  std::unique_ptr<HostModule> module(new HostModule(std::move(code)));
  module->entry_ = entry->toPtr<HostEntry>();
  module->shared_bytes_ =
      ReadConstant(*module->code_->jit, "kvforge_shared_bytes");
  module->block_threads_ =
      ReadConstant(*module->code_->jit, "kvforge_block_threads");
  return module;
}

absl::StatusOr<HostRun> HostModule::Run(const HostLaunch& launch) const {
  return RunOnFibers(entry_, launch, FiberStackPool::OfProcess());
}

}  // namespace kvforge
