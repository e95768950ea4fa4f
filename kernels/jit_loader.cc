#include "kernels/jit_loader.h"

#include <dlfcn.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr char kLibraryName[] = "libkvforge_jit.so";

// Anchors dladdr in the binary that holds this code.
void Anchor() {}

// Where the library may lie beside this binary.
std::vector<std::string> DefaultPaths() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(&Anchor), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {kLibraryName};
  }
  std::string folder = info.dli_fname;
  const size_t slash = folder.rfind('/');
  folder = slash == std::string::npos ? "." : folder.substr(0, slash);
  return {absl::StrCat(folder, "/", kLibraryName),
          absl::StrCat(folder, "/../lib/", kLibraryName)};
}

template <typename Function>
absl::Status Resolve(void* library, const std::string& path, const char* name,
                     Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, " has no ", name,
      "; a libkvforge_jit.so of this version has it; install both libraries "
      "from one build"));
}

absl::StatusOr<LaunchFacts> ParseFacts(absl::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(
      text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InternalError(
        absl::StrCat("libkvforge_jit: facts are not a JSON object: ", text));
  }
  LaunchFacts facts;
  const auto number = [&](const char* name, int& value) {
    const auto field = json.find(name);
    if (field == json.end() || !field->is_number_integer()) return false;
    value = field->get<int>();
    return true;
  };
  if (!number("registers", facts.registers) ||
      !number("static_shared", facts.static_shared_bytes) ||
      !number("dynamic_shared", facts.dynamic_shared_bytes) ||
      !number("block_threads", facts.block_threads) ||
      !number("spill_bytes", facts.spill_bytes) ||
      !number("local_bytes", facts.local_bytes)) {
    return absl::InternalError(
        absl::StrCat("libkvforge_jit: facts lack a number: ", text));
  }
  const auto string = [&](const char* name) {
    const auto field = json.find(name);
    return field != json.end() && field->is_string() ? field->get<std::string>()
                                                     : std::string();
  };
  facts.compiler = string("compiler");
  facts.text_digest = string("text_digest");
  return facts;
}

}  // namespace

HostKernel::~HostKernel() { library_->host_unload_(module_); }

absl::Status HostKernel::Run(const kvforge_jit_host_launch& launch,
                             int* shared_high_water) const {
  char* error = nullptr;
  const int code =
      library_->host_run_(module_, &launch, shared_high_water, &error);
  return library_->Take(code, &error);
}

absl::StatusOr<std::shared_ptr<const JitLibrary>> JitLibrary::Open(
    const std::string& path) {
  const std::vector<std::string> paths =
      path.empty() ? DefaultPaths() : std::vector<std::string>{path};
  std::vector<std::string> failures;
  for (const std::string& candidate : paths) {
    // Never closed: the compiler's libraries do not survive being unloaded.
    void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      failures.push_back(dlerror());
      continue;
    }
    std::shared_ptr<JitLibrary> jit(new JitLibrary);
    jit->path_ = candidate;
    decltype(&kvforge_jit_abi) abi = nullptr;
    RETURN_IF_ERROR(Resolve(library, candidate, "kvforge_jit_abi", &abi));
    if (abi() != KVFORGE_JIT_ABI) {
      return absl::FailedPreconditionError(
          absl::StrCat(candidate, " has interface version ", abi(),
                       "; this libkvforge uses ", KVFORGE_JIT_ABI,
                       "; install both libraries from one build"));
    }
    RETURN_IF_ERROR(
        Resolve(library, candidate, "kvforge_jit_compile", &jit->compile_));
    RETURN_IF_ERROR(
        Resolve(library, candidate, "kvforge_jit_emit", &jit->emit_));
    RETURN_IF_ERROR(
        Resolve(library, candidate, "kvforge_jit_score", &jit->score_));
    RETURN_IF_ERROR(
        Resolve(library, candidate, "kvforge_jit_free", &jit->free_));
    RETURN_IF_ERROR(
        Resolve(library, candidate, "kvforge_jit_host_load", &jit->host_load_));
    RETURN_IF_ERROR(
        Resolve(library, candidate, "kvforge_jit_host_run", &jit->host_run_));
    RETURN_IF_ERROR(Resolve(library, candidate, "kvforge_jit_host_unload",
                            &jit->host_unload_));
    return std::shared_ptr<const JitLibrary>(std::move(jit));
  }
  return absl::UnavailableError(absl::StrCat(
      "the kernel compiler could not be opened (",
      absl::StrJoin(failures, "; "),
      "); libkvforge_jit.so is looked for beside libkvforge; set KVFORGE_JIT "
      "to "
      "its path, or prime a cache with every kernel that is needed"));
}

absl::Status JitLibrary::Take(int code, char** error) const {
  if (code == 0) return absl::OkStatus();
  const std::string message =
      *error == nullptr ? "libkvforge_jit failed without a message" : *error;
  if (*error != nullptr) free_(*error);
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

namespace {

kvforge_jit_request ToC(const JitRequest& request) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nullptr : text.c_str();
  };
  kvforge_jit_request c = {};
  c.spec = request.spec.c_str();
  c.tile = request.tile.c_str();
  c.gpu = request.gpu.c_str();
  c.target = request.target.c_str();
  c.overlay = or_null(request.overlay);
  c.dump_dir = or_null(request.dump_dir);
  c.score = or_null(request.score);
  return c;
}

}  // namespace

absl::StatusOr<Entry> JitLibrary::Compile(const JitRequest& request) const {
  const kvforge_jit_request c = ToC(request);
  kvforge_jit_result result = {};
  char* error = nullptr;
  RETURN_IF_ERROR(Take(compile_(&c, &result, &error), &error));
  Entry entry;
  entry.payload.assign(result.payload.data, result.payload.size);
  entry.symbol = result.symbol;
  absl::StatusOr<LaunchFacts> facts = ParseFacts(result.facts);
  free_(result.payload.data);
  free_(result.symbol);
  free_(result.facts);
  ASSIGN_OR_RETURN(entry.facts, std::move(facts));
  return entry;
}

absl::StatusOr<std::string> JitLibrary::Emit(const JitRequest& request,
                                             const std::string& stage) const {
  const kvforge_jit_request c = ToC(request);
  char* text = nullptr;
  char* error = nullptr;
  RETURN_IF_ERROR(Take(emit_(&c, stage.c_str(), &text, &error), &error));
  std::string copy = text;
  free_(text);
  return copy;
}

absl::StatusOr<ScoreText> JitLibrary::ReadScore(absl::string_view text) const {
  char* canonical = nullptr;
  char* digest = nullptr;
  char* error = nullptr;
  RETURN_IF_ERROR(Take(
      score_(text.data(), text.size(), &canonical, &digest, &error), &error));
  const ScoreText score = {canonical, digest};
  free_(canonical);
  free_(digest);
  return score;
}

absl::StatusOr<std::unique_ptr<HostKernel>> JitLibrary::LoadHost(
    absl::string_view object, const std::string& symbol) const {
  kvforge_jit_host_module* module = nullptr;
  char* error = nullptr;
  RETURN_IF_ERROR(Take(
      host_load_(object.data(), object.size(), symbol.c_str(), &module, &error),
      &error));
  return std::make_unique<HostKernel>(shared_from_this(), module);
}

}  // namespace kvforge
