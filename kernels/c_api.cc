// c_api.h: version, errors, engines and kernels.
#include "kernels/c_api.h"

#include <iterator>
#include <list>
#include <utility>
#include <vector>

#include "compiler/spec/kernel_spec.h"
#include "compiler/target/target.h"
#include "compiler/tile/tile_selector.h"
#include "kernels/build_id.h"
#include "kernels/c_api_boundary.h"
#include "kernels/extend.h"
#include "runtime/base/knobs.h"
#include "runtime/base/status_macros.h"

namespace kvforge::c_api {
namespace {

struct CodeName {
  int code;
  const char* name;
};

constexpr CodeName kCodeNames[] = {
    {KVFORGE_OK, "OK"},
    {KVFORGE_CANCELLED, "CANCELLED"},
    {KVFORGE_UNKNOWN, "UNKNOWN"},
    {KVFORGE_INVALID_ARGUMENT, "INVALID_ARGUMENT"},
    {KVFORGE_DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"},
    {KVFORGE_NOT_FOUND, "NOT_FOUND"},
    {KVFORGE_ALREADY_EXISTS, "ALREADY_EXISTS"},
    {KVFORGE_PERMISSION_DENIED, "PERMISSION_DENIED"},
    {KVFORGE_RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"},
    {KVFORGE_FAILED_PRECONDITION, "FAILED_PRECONDITION"},
    {KVFORGE_ABORTED, "ABORTED"},
    {KVFORGE_OUT_OF_RANGE, "OUT_OF_RANGE"},
    {KVFORGE_UNIMPLEMENTED, "UNIMPLEMENTED"},
    {KVFORGE_INTERNAL, "INTERNAL"},
    {KVFORGE_UNAVAILABLE, "UNAVAILABLE"},
    {KVFORGE_DATA_LOSS, "DATA_LOSS"},
    {KVFORGE_UNAUTHENTICATED, "UNAUTHENTICATED"},
};

constexpr int CodeOf(absl::StatusCode code) { return static_cast<int>(code); }
static_assert(KVFORGE_OK == CodeOf(absl::StatusCode::kOk));
static_assert(KVFORGE_CANCELLED == CodeOf(absl::StatusCode::kCancelled));
static_assert(KVFORGE_UNKNOWN == CodeOf(absl::StatusCode::kUnknown));
static_assert(KVFORGE_INVALID_ARGUMENT ==
              CodeOf(absl::StatusCode::kInvalidArgument));
static_assert(KVFORGE_DEADLINE_EXCEEDED ==
              CodeOf(absl::StatusCode::kDeadlineExceeded));
static_assert(KVFORGE_NOT_FOUND == CodeOf(absl::StatusCode::kNotFound));
static_assert(KVFORGE_ALREADY_EXISTS ==
              CodeOf(absl::StatusCode::kAlreadyExists));
static_assert(KVFORGE_PERMISSION_DENIED ==
              CodeOf(absl::StatusCode::kPermissionDenied));
static_assert(KVFORGE_RESOURCE_EXHAUSTED ==
              CodeOf(absl::StatusCode::kResourceExhausted));
static_assert(KVFORGE_FAILED_PRECONDITION ==
              CodeOf(absl::StatusCode::kFailedPrecondition));
static_assert(KVFORGE_ABORTED == CodeOf(absl::StatusCode::kAborted));
static_assert(KVFORGE_OUT_OF_RANGE == CodeOf(absl::StatusCode::kOutOfRange));
static_assert(KVFORGE_UNIMPLEMENTED ==
              CodeOf(absl::StatusCode::kUnimplemented));
static_assert(KVFORGE_INTERNAL == CodeOf(absl::StatusCode::kInternal));
static_assert(KVFORGE_UNAVAILABLE == CodeOf(absl::StatusCode::kUnavailable));
static_assert(KVFORGE_DATA_LOSS == CodeOf(absl::StatusCode::kDataLoss));
static_assert(KVFORGE_UNAUTHENTICATED ==
              CodeOf(absl::StatusCode::kUnauthenticated));

static_assert(KVFORGE_TARGET_HOST == static_cast<int>(TargetKind::kHost));
static_assert(KVFORGE_TARGET_CUDA == static_cast<int>(TargetKind::kCuda));
static_assert(KVFORGE_SCORE_DIGEST_BYTES == kScoreDigits + 1);

// One a thread, so that a thread reads the message of its own call.
struct LastError {
  std::string text;
  const char* message = "";  // text's characters, or a literal
};

LastError& ThisThreadsError() noexcept {
  thread_local LastError error;
  return error;
}

absl::Status CheckFlag(absl::string_view name, int64_t value) {
  if (value == 0 || value == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("kvforge_engine_create: options.", name, " = ", value,
                   " is no flag; 0 and 1 are supported; clear the struct "
                   "before it is filled in"));
}

std::string TextOrEmpty(const char* text) {
  return text == nullptr ? std::string() : std::string(text);
}

absl::Status ReadCacheRoots(const kvforge_engine_options& c,
                            EngineOptions& options) {
  if (c.num_cache_roots < 0 ||
      (c.num_cache_roots > 0 && c.cache_roots == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kvforge_engine_create: options.num_cache_roots = ", c.num_cache_roots,
        " with options.cache_roots ", c.cache_roots == nullptr ? "" : "not ",
        "null; the number of roots that cache_roots points to is supported; "
        "pass 0 for no cache on disk"));
  }
  for (int64_t i = 0; i < c.num_cache_roots; ++i) {
    const kvforge_cache_root& root = c.cache_roots[i];
    RETURN_IF_ERROR(CheckNotNull("kvforge_engine_create",
                                 absl::StrCat("options.cache_roots[", i, "]"),
                                 root.path, "the path of a folder"));
    RETURN_IF_ERROR(
        CheckFlag(absl::StrCat("cache_roots[", i, "].trusted"), root.trusted));
    options.cache_roots.push_back({root.path, root.trusted == 1});
  }
  return absl::OkStatus();
}

absl::StatusOr<EngineOptions> ReadOptions(const kvforge_engine_options* from) {
  kvforge_engine_options c;
  RETURN_IF_ERROR(ReadStruct("kvforge_engine_create", "options", from, c));
  EngineOptions options;
  if (c.target != KVFORGE_TARGET_HOST && c.target != KVFORGE_TARGET_CUDA) {
    return absl::InvalidArgumentError(
        absl::StrCat("kvforge_engine_create: options.target = ", c.target,
                     " is no target; KVFORGE_TARGET_HOST and "
                     "KVFORGE_TARGET_CUDA are supported; pass one of them"));
  }
  options.target = static_cast<TargetKind>(c.target);
  options.device = c.device;
  if (c.gpu != nullptr) options.gpu = c.gpu;
  RETURN_IF_ERROR(ReadCacheRoots(c, options));
  if (c.cache_byte_cap < KVFORGE_NO_BYTE_CAP) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kvforge_engine_create: options.cache_byte_cap = ", c.cache_byte_cap,
        " is no number of bytes; one or more bytes, 0 for ", kDefaultCacheBytes,
        " and KVFORGE_NO_BYTE_CAP are supported; pass one of them"));
  }
  if (c.cache_byte_cap != 0) {
    options.cache_byte_cap =
        c.cache_byte_cap == KVFORGE_NO_BYTE_CAP ? 0 : c.cache_byte_cap;
  }
  RETURN_IF_ERROR(CheckFlag("strict", c.strict));
  RETURN_IF_ERROR(CheckFlag("recompile", c.recompile));
  options.strict = c.strict == 1;
  options.recompile = c.recompile == 1;
  // No field of its own: a line of it goes to `log`, or to stderr.
  if (const auto knobs = EnvironmentKnobs(); knobs.ok()) {
    options.verbose = knobs->verbose;
  }
  options.jit_path = TextOrEmpty(c.jit_path);
  options.templates_dir = TextOrEmpty(c.templates_dir);
  options.dump_dir = TextOrEmpty(c.dump_dir);
  if (c.seed != 0) options.seed = c.seed;
  if (c.log != nullptr) {
    options.log = [log = c.log, user = c.log_user](absl::string_view line) {
      // The function may be C++ of the caller's: what it throws must not pass
      // through ours, which may hold what others wait for.
      try {
        log(user, std::string(line).c_str());
      } catch (...) {
      }
    };
  }
  return options;
}

// The environment's options and what a C struct of them points to.
struct EnvironmentOptions {
  absl::StatusOr<EngineOptions> options = EngineOptionsFromEnvironment();
  std::vector<kvforge_cache_root> roots;
};

const EnvironmentOptions& FromEnvironment() {
  // Never destroyed: the structs that point into it are the callers'.
  static const auto& environment = *[] {
    auto* made = new EnvironmentOptions;
    if (made->options.ok()) {
      for (const CacheRoot& root : made->options->cache_roots) {
        made->roots.push_back({root.path.c_str(), root.trusted ? 1 : 0});
      }
    }
    return made;
  }();
  return environment;
}

absl::Status FillFromEnvironment(kvforge_engine_options* to) {
  RETURN_IF_ERROR(
      CheckStruct("kvforge_engine_options_from_environment", "options", to));
  const EnvironmentOptions& environment = FromEnvironment();
  RETURN_IF_ERROR(environment.options.status());
  const EngineOptions& options = *environment.options;
  const auto text = [](const std::string& value) {
    return value.empty() ? nullptr : value.c_str();
  };
  kvforge_engine_options c = {};
  c.cache_roots = environment.roots.data();
  c.num_cache_roots = static_cast<int64_t>(environment.roots.size());
  c.cache_byte_cap = options.cache_byte_cap == 0 ? KVFORGE_NO_BYTE_CAP
                                                 : options.cache_byte_cap;
  c.strict = options.strict ? 1 : 0;
  c.recompile = options.recompile ? 1 : 0;
  c.jit_path = text(options.jit_path);
  c.templates_dir = text(options.templates_dir);
  c.dump_dir = text(options.dump_dir);
  WriteStruct(c, to);
  return absl::OkStatus();
}

absl::Status CheckServed(const char* spec_text, const char* gpu_name) {
  constexpr char kCall[] = "kvforge_check_spec";
  RETURN_IF_ERROR(CheckNotNull(kCall, "spec", spec_text, "a SPEC"));
  RETURN_IF_ERROR(CheckNotNull(kCall, "gpu", gpu_name, "a GPU's name"));
  ASSIGN_OR_RETURN(const KernelSpec spec, ParseSpec(spec_text));
  ASSIGN_OR_RETURN(const GpuTarget* gpu, FindTarget(gpu_name));
  return SelectTile(spec, *gpu).status();
}

absl::Status Create(const kvforge_engine_options* options,
                    kvforge_engine** engine) {
  RETURN_IF_ERROR(CheckNotNull("kvforge_engine_create", "engine", engine,
                               "where the handle goes"));
  *engine = nullptr;
  ASSIGN_OR_RETURN(EngineOptions read, ReadOptions(options));
  auto made = std::make_unique<kvforge_engine>();
  ASSIGN_OR_RETURN(made->engine, Engine::Create(std::move(read)));
  made->gpu = std::string(made->engine->gpu().name);
  *engine = made.release();
  return absl::OkStatus();
}

absl::Status FillFacts(const kvforge_engine* engine,
                       kvforge_engine_facts* facts) {
  constexpr char kCall[] = "kvforge_engine_get_facts";
  RETURN_IF_ERROR(CheckNotNull(kCall, "engine", engine, "an engine"));
  RETURN_IF_ERROR(CheckStruct(kCall, "facts", facts));
  kvforge_engine_facts known = {};
  known.gpu = engine->gpu.c_str();
  known.target = static_cast<int32_t>(engine->engine->target());
  known.multiprocessors = engine->engine->multiprocessors();
  WriteStruct(known, facts);
  return absl::OkStatus();
}

absl::Status FillStatistics(const kvforge_engine* engine,
                            kvforge_statistics* statistics) {
  constexpr char kCall[] = "kvforge_engine_get_statistics";
  RETURN_IF_ERROR(CheckNotNull(kCall, "engine", engine, "an engine"));
  RETURN_IF_ERROR(CheckStruct(kCall, "statistics", statistics));
  const EngineStatistics counted = engine->engine->statistics();
  kvforge_statistics known = {};
  known.compiles = counted.compiles;
  known.disk_hits = counted.disk_hits;
  known.memory_hits = counted.memory_hits + counted.waits;
  known.compile_ms = counted.compile_ms;
  known.load_ms = counted.load_ms;
  WriteStruct(known, statistics);
  return absl::OkStatus();
}

absl::Status AddScoreFunction(kvforge_engine* engine, const char* text,
                              size_t text_bytes, char* digest) {
  constexpr char kCall[] = "kvforge_engine_add_score_function";
  RETURN_IF_ERROR(CheckNotNull(kCall, "engine", engine, "an engine"));
  RETURN_IF_ERROR(CheckNotNull(kCall, "text", text, "a score function"));
  RETURN_IF_ERROR(CheckNotNull(kCall, "digest", digest,
                               "KVFORGE_SCORE_DIGEST_BYTES bytes"));
  constexpr size_t kMostBytes = size_t{1} << 31;
  if (text_bytes > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        kCall, ": text_bytes = ", text_bytes, "; up to ", kMostBytes,
        " are supported, and -1 does not stand for the end of a string; pass "
        "its length"));
  }
  ASSIGN_OR_RETURN(const std::string added,
                   engine->engine->AddScoreFunction({text, text_bytes}));
  const size_t copied = added.copy(digest, KVFORGE_SCORE_DIGEST_BYTES - 1);
  digest[copied] = '\0';
  return absl::OkStatus();
}

absl::Status Prepare(absl::string_view call, bool on_images,
                     kvforge_engine* engine, const char* spec_text,
                     kvforge_kernel** result) {
  RETURN_IF_ERROR(
      CheckNotNull(call, "kernel", result, "where the handle goes"));
  *result = nullptr;
  RETURN_IF_ERROR(CheckNotNull(call, "engine", engine, "an engine"));
  RETURN_IF_ERROR(CheckNotNull(call, "spec", spec_text, "a SPEC"));
  ASSIGN_OR_RETURN(const KernelSpec spec, ParseSpec(spec_text));
  auto kernel = std::make_unique<kvforge_kernel>();
  if (on_images) {
    ASSIGN_OR_RETURN(const Tile tile, ImagesTile(*engine->engine, spec));
    ASSIGN_OR_RETURN(kernel->prepared, engine->engine->Prepare(spec, tile));
  } else {
    ASSIGN_OR_RETURN(kernel->prepared, engine->engine->Prepare(spec));
  }
  kernel->spec = kernel->prepared->spec().Text();
  kernel->tile = kernel->prepared->tile().Text();
  kernel->key_digest = KeyDigest(kernel->prepared->key());
  *result = kernel.release();
  return absl::OkStatus();
}

absl::Status FillFacts(const kvforge_kernel* kernel,
                       kvforge_kernel_facts* facts) {
  constexpr char kCall[] = "kvforge_kernel_get_facts";
  RETURN_IF_ERROR(CheckNotNull(kCall, "kernel", kernel, "a kernel"));
  RETURN_IF_ERROR(CheckStruct(kCall, "facts", facts));
  const LaunchFacts& launch = kernel->prepared->facts();
  kvforge_kernel_facts known = {};
  known.spec = kernel->spec.c_str();
  known.tile = kernel->tile.c_str();
  known.arch = kernel->prepared->key().arch.c_str();
  known.key_digest = kernel->key_digest.c_str();
  known.compiler = launch.compiler.c_str();
  known.registers = launch.registers;
  known.spill_bytes = launch.spill_bytes;
  known.local_bytes = launch.local_bytes;
  known.static_shared_bytes = launch.static_shared_bytes;
  known.dynamic_shared_bytes = launch.dynamic_shared_bytes;
  known.block_threads = launch.block_threads;
  WriteStruct(known, facts);
  return absl::OkStatus();
}

}  // namespace

int Report(absl::StatusCode code, absl::string_view message) noexcept {
  LastError& error = ThisThreadsError();
  try {
    error.text.assign(message.data(), message.size());
    error.message = error.text.c_str();
  } catch (...) {
    error.message = "the process is out of memory, also for this message";
  }
  return CodeOf(code);
}

absl::Status StructSizeError(absl::string_view call, absl::string_view name,
                             size_t struct_size, size_t first_bytes,
                             size_t bytes) {
  return absl::InvalidArgumentError(absl::StrCat(
      call, ": ", name, ".struct_size = ", struct_size, "; ", first_bytes,
      " or more bytes are supported, ", bytes,
      " in this library; set it to sizeof(the struct) before the call"));
}

absl::Status UnknownFieldError(absl::string_view call, absl::string_view name,
                               size_t struct_size, size_t bytes) {
  return absl::InvalidArgumentError(absl::StrCat(
      call, ": ", name, " has ", struct_size, " bytes, and not all are 0 from ",
      bytes, " on, where the fields end that this libkvforge (",
      KVFORGE_VERSION,
      ") knows; leave newer fields at 0, or install the libkvforge that the "
      "program was compiled for"));
}

}  // namespace kvforge::c_api

namespace api = kvforge::c_api;

int32_t kvforge_abi_version(void) { return KVFORGE_C_ABI; }
const char* kvforge_version(void) { return KVFORGE_VERSION; }
const char* kvforge_build_id(void) { return kvforge::kBuildId; }
const char* kvforge_last_error(void) { return api::ThisThreadsError().message; }

const char* kvforge_status_name(int status) {
  for (const api::CodeName& row : api::kCodeNames) {
    if (row.code == status) return row.name;
  }
  return "no status of kvforge";
}

int kvforge_engine_options_from_environment(kvforge_engine_options* options) {
  return api::Guarded([&] { return api::FillFromEnvironment(options); });
}

int kvforge_engine_create(const kvforge_engine_options* options,
                          kvforge_engine** engine) {
  return api::Guarded([&] { return api::Create(options, engine); });
}

void kvforge_engine_destroy(kvforge_engine* engine) { delete engine; }

int kvforge_engine_get_facts(const kvforge_engine* engine,
                             kvforge_engine_facts* facts) {
  return api::Guarded([&] { return api::FillFacts(engine, facts); });
}

int kvforge_engine_get_statistics(const kvforge_engine* engine,
                                  kvforge_statistics* statistics) {
  return api::Guarded([&] { return api::FillStatistics(engine, statistics); });
}

int kvforge_check_spec(const char* spec, const char* gpu) {
  return api::Guarded([&] { return api::CheckServed(spec, gpu); });
}

int kvforge_engine_add_score_function(kvforge_engine* engine, const char* text,
                                      size_t text_bytes, char* digest) {
  return api::Guarded(
      [&] { return api::AddScoreFunction(engine, text, text_bytes, digest); });
}

int kvforge_prepare(kvforge_engine* engine, const char* spec,
                    kvforge_kernel** kernel) {
  return api::Guarded([&] {
    return api::Prepare("kvforge_prepare", /*on_images=*/false, engine, spec,
                        kernel);
  });
}

int kvforge_prepare_extend_on_images(kvforge_engine* engine, const char* spec,
                                     kvforge_kernel** kernel) {
  return api::Guarded([&] {
    return api::Prepare("kvforge_prepare_extend_on_images", /*on_images=*/true,
                        engine, spec, kernel);
  });
}

void kvforge_kernel_release(kvforge_kernel* kernel) { delete kernel; }

int kvforge_kernel_get_facts(const kvforge_kernel* kernel,
                             kvforge_kernel_facts* facts) {
  return api::Guarded([&] { return api::FillFacts(kernel, facts); });
}
