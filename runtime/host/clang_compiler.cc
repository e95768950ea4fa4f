#include "runtime/host/clang_compiler.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clang/Basic/DiagnosticOptions.h"
#include "clang/Basic/Version.h"
#include "clang/CodeGen/CodeGenAction.h"
#include "clang/Frontend/CompilerInstance.h"
#include "clang/Frontend/CompilerInvocation.h"
#include "clang/Frontend/TextDiagnosticPrinter.h"
#include "clang/Lex/PreprocessorOptions.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/VirtualFileSystem.h"
#include "llvm/Support/raw_ostream.h"

namespace kvforge {
namespace {

constexpr char kProcessor[] = "x86-64-v2";
// Launches of this target are small, so compiling dominates: an attention
// kernel takes 0.1 s without optimization and 0.6 s with, for code that runs
// twice as fast between the switches of fibers.
constexpr char kOptimization[] = "-O0";

// Where the files lie in the compiler's file system.
constexpr char kRoot[] = "/kvforge/";
constexpr char kEntryPath[] = "/kvforge/entry.cc";

// The text, unchanged, and the entry that knows the type of its arguments.
std::string EntryText(const std::string& name) {
  return absl::StrCat("#include \"", name, "\"\n", "extern \"C\" void ",
                      kHostEntrySymbol,
                      "(const void* args) {\n"
                      "  kvforge::arch::internal::RunKernel(kvforge_kernel, "
                      "args);\n"
                      "}\n");
}

std::vector<const char*> Arguments() {
  return {
      "-triple",
      "x86_64-unknown-linux-gnu",
      "-target-cpu",
      kProcessor,
      "-emit-obj",
      kOptimization,
      "-std=c++17",
      "-x",
      "c++",
      "-mrelocation-model",
      "pic",
      "-pic-level",
      "2",
      "-ffp-contract=off",
      // What a kernel reads without having written it is a bad address or a
      // NaN, not what the fiber before left on the stack.
      "-ftrivial-auto-var-init=pattern",
      "-nostdsysteminc",
      "-nobuiltininc",
      "-I",
      kRoot,
      "-DKVFORGE_HOST=1",
      "-Wall",
      "-Werror",
      // The text is written for another compiler as well: constants in
      // extern "C", functions that a specialisation does not call, and hints
      // to unroll that Clang may not follow.
      "-Wno-extern-initializer",
      "-Wno-unused-function",
      "-Wno-pass-failed",
      "-main-file-name",
      "entry.cc",
      kEntryPath,
  };
}

void InitializeOnce() {
  static const bool initialized = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
    return true;
  }();
  (void)initialized;
}

}  // namespace

absl::StatusOr<std::string> CompileHostObject(const HostSource& source) {
  InitializeOnce();
  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  const auto add = [&](const std::string& path, const std::string& text) {
    files->addFile(path, 0, llvm::MemoryBuffer::getMemBufferCopy(text, path));
  };
  for (const HostFile& file : source.files) {
    add(absl::StrCat(kRoot, file.path), file.text);
  }
  add(absl::StrCat(kRoot, source.name), source.text);
  add(kEntryPath, EntryText(source.name));

  std::string log;
  llvm::raw_string_ostream log_stream(log);
  clang::DiagnosticOptions diagnostic_options;
  diagnostic_options.ShowOptionNames = true;
  clang::TextDiagnosticPrinter printer(log_stream, diagnostic_options);
  auto diagnostics = clang::CompilerInstance::createDiagnostics(
      *files, diagnostic_options, &printer, /*ShouldOwnClient=*/false);

  auto invocation = std::make_shared<clang::CompilerInvocation>();
  const std::vector<const char*> arguments = Arguments();
  bool ok = clang::CompilerInvocation::CreateFromArgs(*invocation, arguments,
                                                      *diagnostics);
  llvm::SmallVector<char, 0> object;
  if (ok) {
    clang::CompilerInstance compiler(std::move(invocation));
    compiler.setVirtualFileSystem(files);
    compiler.createDiagnostics(&printer, /*ShouldOwnClient=*/false);
    compiler.setVerboseOutputStream(log_stream);
    compiler.setOutputStream(
        std::make_unique<llvm::raw_svector_ostream>(object));
    clang::EmitObjAction action;
    ok = compiler.ExecuteAction(action);
  }
  if (!ok || object.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "host compile: ", source.name, " does not compile for ", kProcessor,
        "; text that compiles without a warning as C++17 is supported",
        "; mend what the compiler names:\n", log));
  }
  return std::string(object.begin(), object.end());
}

std::string HostCompilerVersion() {
  return absl::StrCat("clang ", CLANG_VERSION_STRING, " ", kProcessor, " ",
                      kOptimization);
}

}  // namespace kvforge
