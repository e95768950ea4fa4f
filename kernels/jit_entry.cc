// kernels/jit_api.h over the compiler, NVRTC and the host target.
#pragma GCC visibility push(default)
#include "kernels/jit_api.h"
#pragma GCC visibility pop

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "compiler/compiler.h"
#include "compiler/spec/kernel_spec.h"
#include "compiler/target/target.h"
#include "compiler/tile/tile.h"
#include "kernels/jit_overlay.h"
#include "runtime/base/digest.h"
#include "runtime/base/file.h"
#include "runtime/base/knobs.h"
#include "runtime/base/shown.h"
#include "runtime/base/status_macros.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "runtime/host/clang_compiler.h"
#include "runtime/host/host_module.h"

struct kvforge_jit_host_module {
  std::unique_ptr<kvforge::HostModule> module;
};

namespace kvforge {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start)
      .count();
}

// What a request asks for, resolved.
struct Job {
  std::string spec_text;
  KernelSpec spec;
  Tile tile;
  const GpuTarget* gpu = nullptr;
  bool host = false;
  std::string overlay;
  std::string dump_dir;
  std::string score;
};

// A built kernel and what its payload itself says.
struct Built {
  std::string payload;
  std::string symbol;
  std::string compiler;
  int registers = 0;
  int static_shared_bytes = 0;
  int spill_bytes = 0;
  int local_bytes = 0;
  int shared_bytes = -1;
  int block_threads = -1;
};

absl::StatusOr<Job> Resolve(const kvforge_jit_request& request) {
  Job job;
  job.spec_text = request.spec;
  ASSIGN_OR_RETURN(job.spec, ParseSpec(request.spec));
  ASSIGN_OR_RETURN(job.tile, ParseTile(request.tile));
  ASSIGN_OR_RETURN(job.gpu, FindTarget(request.gpu));
  const std::string target = request.target;
  if (target != "cuda" && target != "host") {
    return absl::InvalidArgumentError(
        absl::StrCat("target '", Shown(target),
                     "' is unknown; cuda and host are supported; use one of "
                     "these"));
  }
  job.host = target == "host";
  if (request.overlay != nullptr) job.overlay = request.overlay;
  if (request.dump_dir != nullptr) job.dump_dir = request.dump_dir;
  if (request.score != nullptr) job.score = request.score;
  return job;
}

// File name of a job's text or payload, without its ending.
std::string FileStem(const Job& job) {
  return absl::StrCat(
      absl::StrReplaceAll(job.spec_text, {{"/", "_"}, {"=", "-"}}), ".",
      job.host ? "host-" : "", job.host ? job.gpu->name : job.gpu->nvrtc_arch,
      ".", absl::StrReplaceAll(job.tile.Text(), {{"/", "-"}}));
}

NvrtcInput ToNvrtc(const Job& job, const KernelText& text,
                   const std::vector<TemplateFile>& files) {
  NvrtcInput input;
  input.name = FileStem(job) + ".cu";
  input.source = text.source;
  for (const TemplateFile& file : files) {
    input.headers.push_back({file.path, file.text});
  }
  input.arch = std::string(job.gpu->nvrtc_arch);
  input.kernel = text.entry_symbol;
  return input;
}

absl::StatusOr<Built> BuildCuda(const Job& job, const KernelText& text,
                                const std::vector<TemplateFile>& files) {
  ASSIGN_OR_RETURN(const Knobs knobs, EnvironmentKnobs());
  ASSIGN_OR_RETURN(const std::unique_ptr<NvrtcCompiler> compiler,
                   NvrtcCompiler::Open(knobs));
  ASSIGN_OR_RETURN(NvrtcOutput output,
                   compiler->Compile(ToNvrtc(job, text, files)));
  Built built;
  built.payload = std::move(output.cubin);
  built.symbol = text.entry_symbol;
  built.compiler = output.compiler;
  built.registers = output.facts.registers;
  built.static_shared_bytes = output.static_shared_bytes;
  built.spill_bytes = output.spill_bytes;
  built.local_bytes = output.facts.local_bytes;
  built.shared_bytes = output.shared_bytes;
  built.block_threads = output.block_threads;
  return built;
}

absl::StatusOr<Built> BuildHost(const Job& job, const KernelText& text,
                                const std::vector<TemplateFile>& files) {
  HostSource source;
  source.name = FileStem(job) + ".cu";
  source.text = text.source;
  for (const TemplateFile& file : files) {
    source.files.push_back({file.path, file.text});
  }
  Built built;
  ASSIGN_OR_RETURN(built.payload, CompileHostObject(source));
  built.symbol = std::string(kHostEntrySymbol);
  built.compiler = HostCompilerVersion();
  ASSIGN_OR_RETURN(const std::unique_ptr<HostModule> module,
                   HostModule::Load(built.payload, built.symbol));
  built.shared_bytes = module->shared_bytes();
  built.block_threads = module->block_threads();
  return built;
}

// The rejected text is kept where a person can open it.
absl::Status CompileFailure(const Job& job, const KernelText& text,
                            const absl::Status& status) {
  // Anything but a rejected text is the environment's: no NVRTC, unknown arch.
  if (!absl::IsInvalidArgument(status)) return status;
  std::error_code error;
  const std::string folder =
      job.dump_dir.empty()
          ? std::filesystem::temp_directory_path(error).string()
          : job.dump_dir;
  const std::string path = absl::StrCat(folder, "/", FileStem(job), ".cu");
  const absl::Status written = WriteFileAtomically(path, text.source);
  return absl::InternalError(absl::StrCat(
      job.spec_text, " for ", job.gpu->name,
      ": the generated text does not compile: ", status.message(), "; ",
      written.ok()
          ? absl::StrCat("the text is in ", path)
          : absl::StrCat("the text could not be kept: ", written.message()),
      "; report it with this log"));
}

// The memory model and the template count independently; a difference means
// that launches would ask for the wrong size.
absl::Status CheckModel(const Job& job, const KernelText& text,
                        const Built& built) {
  if (built.shared_bytes != text.shared_bytes) {
    return absl::InternalError(absl::StrCat(
        job.spec_text, " tile ", job.tile.Text(), ": the memory model says ",
        text.shared_bytes, " shared bytes, the kernel uses ",
        built.shared_bytes,
        "; the two must be equal; correct SharedBytes or the template"));
  }
  if (built.block_threads != text.block_threads) {
    return absl::InternalError(absl::StrCat(
        job.spec_text, " tile ", job.tile.Text(), ": the compiler says ",
        text.block_threads, " threads a block, the kernel has ",
        built.block_threads,
        "; the two must be equal; correct the tile or the template"));
  }
  return absl::OkStatus();
}

absl::Status Dump(const Job& job, const KernelText& text, const Built& built) {
  if (job.dump_dir.empty()) return absl::OkStatus();
  const std::string stem = absl::StrCat(job.dump_dir, "/", FileStem(job));
  absl::Status status = MakeFolders(job.dump_dir);
  if (status.ok()) status = WriteFileAtomically(stem + ".cu", text.source);
  if (status.ok()) {
    status =
        WriteFileAtomically(stem + (job.host ? ".o" : ".cubin"), built.payload);
  }
  if (status.ok()) return status;
  return absl::FailedPreconditionError(absl::StrCat(
      "dump folder ", Shown(job.dump_dir), ": ", status.message(),
      "; texts and payloads of compiles go to a folder that can be made and "
      "written to; correct dump_dir (KVFORGE_DUMP_DIR) or leave it empty"));
}

std::string TextDigest(const KernelText& text,
                       const std::vector<TemplateFile>& files) {
  Sha256 digest;
  digest.Update(text.source);
  for (const TemplateFile& file : files) {
    digest.Update(absl::StrCat(file.path.size(), ":", file.path,
                               file.text.size(), ":", file.text));
  }
  return digest.FinishHex();
}

char* Copy(absl::string_view text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = 0;
  return copy;
}

absl::Status Compile(const kvforge_jit_request& request,
                     kvforge_jit_result& result) {
  ASSIGN_OR_RETURN(const Job job, Resolve(request));
  ASSIGN_OR_RETURN(const std::vector<TemplateFile> files,
                   TemplateFiles(job.overlay));
  const Clock::time_point start = Clock::now();
  ASSIGN_OR_RETURN(const KernelText text,
                   CompileToText(job.spec, *job.gpu, job.tile, job.score));
  const double text_ms = MillisecondsSince(start);
  const Clock::time_point built_from = Clock::now();
  const absl::StatusOr<Built> built =
      job.host ? BuildHost(job, text, files) : BuildCuda(job, text, files);
  if (!built.ok()) return CompileFailure(job, text, built.status());
  const double build_ms = MillisecondsSince(built_from);
  RETURN_IF_ERROR(CheckModel(job, text, *built));
  RETURN_IF_ERROR(Dump(job, text, *built));
  const nlohmann::json facts = {
      {"registers", built->registers},
      {"static_shared", built->static_shared_bytes},
      {"dynamic_shared", built->shared_bytes},
      {"spill_bytes", built->spill_bytes},
      {"local_bytes", built->local_bytes},
      {"block_threads", built->block_threads},
      {"compiler", built->compiler},
      {"text_digest", TextDigest(text, files)},
      {"text_ms", text_ms},
      {"build_ms", build_ms},
  };
  result.payload.size = built->payload.size();
  result.payload.data = Copy(built->payload);
  result.facts = Copy(facts.dump());
  result.symbol = Copy(built->symbol);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Emit(const kvforge_jit_request& request,
                                 absl::string_view stage) {
  ASSIGN_OR_RETURN(const Job job, Resolve(request));
  if (stage != "ptx") {
    return EmitStage(job.spec, *job.gpu, job.tile, stage, job.score);
  }
  ASSIGN_OR_RETURN(const std::vector<TemplateFile> files,
                   TemplateFiles(job.overlay));
  ASSIGN_OR_RETURN(const KernelText text,
                   CompileToText(job.spec, *job.gpu, job.tile, job.score));
  ASSIGN_OR_RETURN(const Knobs knobs, EnvironmentKnobs());
  ASSIGN_OR_RETURN(const std::unique_ptr<NvrtcCompiler> compiler,
                   NvrtcCompiler::Open(knobs));
  absl::StatusOr<std::string> ptx = compiler->Ptx(ToNvrtc(job, text, files));
  if (!ptx.ok()) return CompileFailure(job, text, ptx.status());
  return ptx;
}

int Report(const absl::Status& status, char** error) {
  if (!status.ok()) *error = Copy(status.message());
  return static_cast<int>(status.code());
}

}  // namespace
}  // namespace kvforge

int kvforge_jit_abi(void) { return KVFORGE_JIT_ABI; }

int kvforge_jit_compile(const kvforge_jit_request* request,
                        kvforge_jit_result* result, char** error) {
  return kvforge::Report(kvforge::Compile(*request, *result), error);
}

int kvforge_jit_emit(const kvforge_jit_request* request, const char* stage,
                     char** text, char** error) {
  const absl::StatusOr<std::string> emitted = kvforge::Emit(*request, stage);
  if (emitted.ok()) *text = kvforge::Copy(*emitted);
  return kvforge::Report(emitted.status(), error);
}

int kvforge_jit_score(const char* data, size_t size, char** text, char** digest,
                      char** error) {
  const absl::StatusOr<kvforge::ScoreFunction> function =
      kvforge::ReadScoreFunction(absl::string_view(data, size));
  if (function.ok()) {
    *text = kvforge::Copy(function->text);
    *digest = kvforge::Copy(function->digest);
  }
  return kvforge::Report(function.status(), error);
}

void kvforge_jit_free(void* data) { std::free(data); }

int kvforge_jit_host_load(const void* object, size_t size, const char* symbol,
                          kvforge_jit_host_module** module, char** error) {
  auto loaded = kvforge::HostModule::Load(
      absl::string_view(static_cast<const char*>(object), size), symbol);
  if (loaded.ok()) {
    *module = new kvforge_jit_host_module{*std::move(loaded)};
  } else if (absl::IsInvalidArgument(loaded.status())) {
    // Bytes of a cache that do not link: damage, to be compiled again.
    return kvforge::Report(absl::DataLossError(loaded.status().message()),
                           error);
  }
  return kvforge::Report(loaded.status(), error);
}

int kvforge_jit_host_run(kvforge_jit_host_module* module,
                         const kvforge_jit_host_launch* launch,
                         int* shared_high_water, char** error) {
  kvforge::HostLaunch host;
  host.grid_blocks = launch->grid_blocks;
  host.block_threads = launch->block_threads;
  host.shared_bytes = launch->shared_bytes;
  host.args = launch->args;
  host.seed = launch->seed;
  const absl::StatusOr<kvforge::HostRun> run = module->module->Run(host);
  if (run.ok()) *shared_high_water = run->shared_high_water;
  return kvforge::Report(run.status(), error);
}

void kvforge_jit_host_unload(kvforge_jit_host_module* module) { delete module; }
