#include "runtime/cuda/nvrtc_compiler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"
#include "runtime/cuda/nvrtc_library.h"
#include "runtime/cuda/ptxas_log.h"

namespace kvforge {
namespace {

constexpr size_t kMaxLogBytes = 16 << 10;  // of an error message
constexpr absl::string_view kRealPrefix = "sm_";
constexpr absl::string_view kVirtualPrefix = "compute_";
// Spills and static shared memory are in its log only.
constexpr absl::string_view kVerboseAssembler = "--ptxas-options=-v";
// From CUDA 12.9 on NVRTC takes repeated compiles from the driver's cache on
// disk, then with an empty log: neither warnings nor spills would be seen.
constexpr absl::string_view kNoCache = "--no-cache";
constexpr int kCachesSinceMajor = 12;
constexpr int kCachesSinceMinor = 9;

absl::Status NvrtcError(const NvrtcLibrary& library, int result,
                        absl::string_view what) {
  if (result == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(what, ": ", library.GetErrorString(result)));
}

class Program {
 public:
  static absl::StatusOr<Program> Create(const NvrtcLibrary& library,
                                        const NvrtcInput& input) {
    std::vector<const char*> texts;
    std::vector<const char*> paths;
    for (const NvrtcHeader& header : input.headers) {
      texts.push_back(header.text.c_str());
      paths.push_back(header.path.c_str());
    }
    Program program(library);
    RETURN_IF_ERROR(NvrtcError(
        library,
        library.CreateProgram(
            &program.program_, input.source.c_str(), input.name.c_str(),
            static_cast<int>(texts.size()), texts.data(), paths.data()),
        "nvrtcCreateProgram"));
    return program;
  }
  Program(Program&& other) noexcept
      : library_(other.library_),
        program_(std::exchange(other.program_, nullptr)) {}
  Program& operator=(Program&&) = delete;
  ~Program() {
    if (program_ != nullptr) library_.DestroyProgram(&program_);
  }

  int Compile(const std::vector<std::string>& options) {
    std::vector<const char*> pointers;
    for (const std::string& option : options) {
      pointers.push_back(option.c_str());
    }
    return library_.CompileProgram(program_, static_cast<int>(pointers.size()),
                                   pointers.data());
  }

  absl::StatusOr<std::string> Cubin() const {
    return Bytes(library_.GetCubinSize, library_.GetCubin, "nvrtcGetCUBIN");
  }

  // Without the zero that NVRTC counts as a part of texts.
  absl::StatusOr<std::string> Ptx() const {
    return Text(library_.GetPtxSize, library_.GetPtx, "nvrtcGetPTX");
  }
  absl::StatusOr<std::string> Log() const {
    return Text(library_.GetProgramLogSize, library_.GetProgramLog,
                "nvrtcGetProgramLog");
  }

 private:
  using SizeFunction = int (*)(NvrtcProgram, size_t*);
  using BytesFunction = int (*)(NvrtcProgram, char*);

  explicit Program(const NvrtcLibrary& library) : library_(library) {}

  absl::StatusOr<std::string> Bytes(SizeFunction size, BytesFunction get,
                                    absl::string_view what) const {
    size_t byte_count = 0;
    RETURN_IF_ERROR(NvrtcError(library_, size(program_, &byte_count), what));
    std::string bytes(byte_count, '\0');
    RETURN_IF_ERROR(NvrtcError(library_, get(program_, bytes.data()), what));
    return bytes;
  }

  absl::StatusOr<std::string> Text(SizeFunction size, BytesFunction get,
                                   absl::string_view what) const {
    ASSIGN_OR_RETURN(std::string text, Bytes(size, get, what));
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }

  const NvrtcLibrary& library_;
  NvrtcProgram program_ = nullptr;
};

absl::Status CheckArch(absl::string_view arch, absl::string_view compiler,
                       const std::vector<int>& known) {
  absl::string_view digits = arch;
  int number = 0;
  const bool spelled = absl::ConsumePrefix(&digits, kRealPrefix) &&
                       (absl::ConsumeSuffix(&digits, "a") ||
                        absl::ConsumeSuffix(&digits, "f") || true) &&
                       absl::SimpleAtoi(digits, &number);
  if (spelled && std::find(known.begin(), known.end(), number) != known.end()) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat(compiler, " does not compile for \"", arch,
                   "\"; it knows sm_", absl::StrJoin(known, ", sm_"),
                   "; choose one of them or use an NVRTC that knows this one"));
}

// Compiles with `arch` as it is spelled and gives the log.
absl::StatusOr<std::string> CompileProgram(
    const NvrtcLibrary& library, Program& program, const NvrtcInput& input,
    absl::string_view arch, absl::string_view compiler, bool caches) {
  std::vector<std::string> options = input.options;
  if (caches) options.emplace_back(kNoCache);
  options.push_back(absl::StrCat("--gpu-architecture=", arch));
  options.emplace_back(kVerboseAssembler);
  const int result = program.Compile(options);
  ASSIGN_OR_RETURN(std::string log, program.Log());
  const absl::string_view warning = FirstWarning(log);
  if (result == 0 && warning.empty()) return log;
  std::string shown = log.substr(0, kMaxLogBytes);
  if (shown.size() < log.size()) {
    absl::StrAppend(&shown, "\n... ", log.size() - shown.size(), " more bytes");
  }
  return absl::InternalError(absl::StrCat(
      compiler, " rejected ", input.name, " for ", arch, ": ",
      result != 0 ? library.GetErrorString(result)
                  : "a warning, and warnings are errors",
      "; options: ", absl::StrJoin(options, " "),
      "; this is a defect of the emitted text or of a replaced template: see "
      "the log\n",
      shown));
}

}  // namespace

NvrtcCompiler::~NvrtcCompiler() = default;

absl::StatusOr<std::unique_ptr<NvrtcCompiler>> NvrtcCompiler::Open(
    const Knobs& knobs) {
  std::unique_ptr<NvrtcCompiler> compiler(new NvrtcCompiler);
  ASSIGN_OR_RETURN(compiler->library_, OpenNvrtcLibrary(knobs));
  const NvrtcLibrary& library = *compiler->library_;
  int major = 0;
  int minor = 0;
  RETURN_IF_ERROR(
      NvrtcError(library, library.Version(&major, &minor), "nvrtcVersion"));
  int arch_count = 0;
  RETURN_IF_ERROR(NvrtcError(library, library.GetNumSupportedArchs(&arch_count),
                             "nvrtcGetNumSupportedArchs"));
  compiler->archs_.resize(arch_count);
  RETURN_IF_ERROR(NvrtcError(library,
                             library.GetSupportedArchs(compiler->archs_.data()),
                             "nvrtcGetSupportedArchs"));
  compiler->path_ = library.path;
  compiler->caches_ = std::pair(major, minor) >=
                      std::pair(kCachesSinceMajor, kCachesSinceMinor);
  compiler->compiler_ = absl::StrCat("nvrtc ", major, ".", minor);
  return compiler;
}

absl::StatusOr<NvrtcOutput> NvrtcCompiler::Compile(
    const NvrtcInput& input) const {
  RETURN_IF_ERROR(CheckArch(input.arch, compiler_, archs_));
  ASSIGN_OR_RETURN(Program program, Program::Create(*library_, input));
  NvrtcOutput output;
  ASSIGN_OR_RETURN(output.log, CompileProgram(*library_, program, input,
                                              input.arch, compiler_, caches_));
  ASSIGN_OR_RETURN(output.cubin, program.Cubin());
  ASSIGN_OR_RETURN(output.facts, ReadCubinFacts(output.cubin, input.kernel));
  ASSIGN_OR_RETURN(const PtxasFacts assembled,
                   ParsePtxasLog(output.log, input.kernel));
  output.static_shared_bytes = assembled.static_shared_bytes;
  output.spill_bytes = assembled.spill_bytes;
  ASSIGN_OR_RETURN(
      output.shared_bytes,
      ReadOptionalConstantInt(output.cubin, "kvforge_shared_bytes"));
  ASSIGN_OR_RETURN(
      output.block_threads,
      ReadOptionalConstantInt(output.cubin, "kvforge_block_threads"));
  output.compiler = compiler_;
  return output;
}

absl::StatusOr<std::string> NvrtcCompiler::Ptx(const NvrtcInput& input) const {
  RETURN_IF_ERROR(CheckArch(input.arch, compiler_, archs_));
  ASSIGN_OR_RETURN(Program program, Program::Create(*library_, input));
  const std::string virtual_arch =
      absl::StrCat(kVirtualPrefix, absl::StripPrefix(input.arch, kRealPrefix));
  RETURN_IF_ERROR(CompileProgram(*library_, program, input, virtual_arch,
                                 compiler_, caches_)
                      .status());
  return program.Ptx();
}

}  // namespace kvforge
