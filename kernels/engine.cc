#include "kernels/engine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/tile/tile_selector.h"
#include "kernels/build_id.h"
#include "kernels/jit_loader.h"
#include "runtime/base/digest.h"
#include "runtime/base/file.h"
#include "runtime/base/knobs.h"
#include "runtime/base/status_macros.h"
#include "runtime/cuda/compile_options.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/module.h"
#include "runtime/tune/fingerprint.h"

namespace kvforge {
namespace {

// What split decode is sized for where there is no GPU: few, so that the host
// target runs few blocks.
constexpr int kHostMultiprocessors = 8;

constexpr char kHostArchPrefix[] = "host-";

double MillisecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now() - start)
      .count();
}

// Digest of every file of a folder of templates: path and text.
absl::StatusOr<std::string> FolderDigest(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> paths;
  for (fs::recursive_directory_iterator it(folder, error), end;
       !error && it != end; it.increment(error)) {
    if (it->is_regular_file(error)) paths.push_back(it->path().string());
  }
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("templates folder ", folder, ": ", error.message(),
                     "; it must be a readable folder; correct templates_dir or "
                     "leave it empty"));
  }
  std::sort(paths.begin(), paths.end());
  Sha256 digest;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    const std::string name = path.substr(folder.size());
    digest.Update(absl::StrCat(name.size(), ":", name, text.size(), ":", text));
  }
  return digest.FinishHex();
}

absl::StatusOr<GpuTarget> TargetOfDevice(const Device& device) {
  GpuTarget gpu = TargetForComputeCapability(device.compute_capability());
  if (!gpu.served) {
    return absl::UnimplementedError(absl::StrCat(
        "device ", device.ordinal(), " (", device.name(),
        ") has compute capability ", device.compute_capability() / 10, ".",
        device.compute_capability() % 10,
        ", for which no kernel is generated; `kvforge gpus` lists those that "
        "are served; choose another device"));
  }
  const DeviceLimits& limits = device.limits();
  gpu.shared_bytes_opt_in = limits.shared_bytes_opt_in;
  gpu.shared_bytes_per_sm = limits.shared_bytes_per_sm;
  gpu.shared_bytes_reserved = limits.shared_bytes_reserved;
  gpu.warps_per_sm = limits.threads_per_sm / 32;
  gpu.registers_per_sm = limits.registers_per_sm;
  return gpu;
}

}  // namespace

absl::StatusOr<EngineOptions> EngineOptionsFromEnvironment() {
  ASSIGN_OR_RETURN(const Knobs knobs, EnvironmentKnobs());
  EngineOptions options;
  const DiskCacheOptions cache = DiskCacheOptionsFromKnobs(knobs);
  options.cache_roots = cache.roots;
  options.cache_byte_cap = cache.byte_cap;
  options.strict = knobs.strict();
  options.templates_dir = knobs.templates_dir;
  if (!knobs.strict()) options.jit_path = knobs.jit_path;
  options.dump_dir = knobs.dump_dir;
  options.tune_db = knobs.tune_db;
  options.recompile = knobs.recompile;
  options.verbose = knobs.verbose;
  return options;
}

PreparedKernel::PreparedKernel() = default;
PreparedKernel::~PreparedKernel() = default;

absl::Status PreparedKernel::Launch(int64_t blocks, const void* args,
                                    size_t args_bytes, void* stream) const {
  if (blocks == 0) return absl::OkStatus();
  const LaunchFacts& facts = entry_->facts;
  if (cuda_ != nullptr) {
    return cuda_->Launch(
        {blocks, facts.block_threads, facts.dynamic_shared_bytes},
        static_cast<CuStream>(stream), args, args_bytes);
  }
  kvforge_jit_host_launch launch = {};
  launch.grid_blocks = blocks;
  launch.block_threads = facts.block_threads;
  launch.shared_bytes = facts.dynamic_shared_bytes;
  launch.args = args;
  // Every launch has another fiber order; all follow from the engine's seed.
  launch.seed = seed_ + launches_.fetch_add(1);
  int high_water = 0;
  RETURN_IF_ERROR(host_->Run(launch, &high_water));
  int seen = shared_high_water_.load();
  while (seen < high_water &&
         !shared_high_water_.compare_exchange_weak(seen, high_water)) {
  }
  return absl::OkStatus();
}

absl::Status PreparedKernel::EncodeMap(const TensorBox& box,
                                       TensorMap& map) const {
  if (cuda_ == nullptr) {
    EncodeHostTensorMap(box, map);
    return absl::OkStatus();
  }
  const ScopedContext context(cuda_->device());
  RETURN_IF_ERROR(context.status());
  return EncodeTensorMap(cuda_->device().api(), box, map);
}

Engine::Engine(EngineOptions options) : options_(std::move(options)) {}
Engine::~Engine() = default;

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(EngineOptions options) {
  std::unique_ptr<Engine> engine(new Engine(std::move(options)));
  const EngineOptions& opts = engine->options_;
  if (opts.target == TargetKind::kCuda) {
    ASSIGN_OR_RETURN(engine->device_, Device::Open(opts.device));
    ASSIGN_OR_RETURN(engine->gpu_, TargetOfDevice(*engine->device_));
    engine->multiprocessors_ = engine->device_->limits().sm_count;
    engine->fingerprint_ = DeviceFingerprint(
        engine->device_->name(), engine->device_->compute_capability(),
        engine->device_->limits());
  } else {
    ASSIGN_OR_RETURN(const GpuTarget* gpu, FindTarget(opts.gpu));
    engine->gpu_ = *gpu;
    engine->multiprocessors_ = kHostMultiprocessors;
    engine->fingerprint_ = absl::StrCat("host ", gpu->name);
  }
  if (!opts.tune_db.empty()) {
    ASSIGN_OR_RETURN(engine->winners_, Winners::Read(opts.tune_db));
  }
  engine->build_id_ = kBuildId;
  if (!opts.templates_dir.empty()) {
    ASSIGN_OR_RETURN(engine->overlay_digest_, FolderDigest(opts.templates_dir));
    absl::StrAppend(&engine->build_id_, "+", engine->overlay_digest_);
  }
  KernelStoreOptions store;
  store.cache.roots = opts.cache_roots;
  store.cache.byte_cap = opts.cache_byte_cap;
  store.cache.warn = opts.log;
  store.recompile = opts.recompile;
  store.log = opts.log;
  if (!opts.strict) {
    Engine* self = engine.get();  // owns the store, outlives its calls
    store.compile = [self](const KernelRequest& request) {
      return self->CompileEntry(request);
    };
    store.on_compile = [self](const CompileReport& report) {
      std::lock_guard lock(self->mutex_);
      self->statistics_.compile_ms += report.milliseconds;
    };
  }
  engine->store_ = std::make_unique<KernelStore>(std::move(store));
  return engine;
}

KeyFields Engine::Key(const KernelSpec& spec, const Tile& tile,
                      const GpuTarget& gpu, absl::string_view target) const {
  KeyFields key;
  key.spec = spec.Text();
  key.tile = tile.Text();
  if (target == "host") {
    key.arch = absl::StrCat(kHostArchPrefix, gpu.name);
  } else {
    key.arch = std::string(gpu.nvrtc_arch);
    key.options = CudaCompileOptions();
  }
  key.build_id = build_id_;
  return key;
}

absl::StatusOr<std::shared_ptr<const JitLibrary>> Engine::Jit() {
  std::lock_guard lock(mutex_);
  if (jit_ == nullptr) {
    ASSIGN_OR_RETURN(jit_, JitLibrary::Open(options_.jit_path));
  }
  return jit_;
}

absl::StatusOr<std::string> Engine::AddScoreFunction(absl::string_view text) {
  if (options_.strict) {
    return absl::FailedPreconditionError(
        "score function: a strict engine has no compiler to read its text "
        "with; with a primed cache the SPEC's score=DIGEST is enough; write "
        "the digest that `kvforge score FILE` prints");
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const JitLibrary> jit, Jit());
  ASSIGN_OR_RETURN(ScoreText score, jit->ReadScore(text));
  std::lock_guard lock(mutex_);
  score_texts_[score.digest] = std::move(score.text);
  return score.digest;
}

absl::StatusOr<std::string> Engine::ScoreFunctionText(
    absl::string_view digest) const {
  if (digest.empty()) return std::string();
  std::lock_guard lock(mutex_);
  const auto found = score_texts_.find(digest);
  if (found != score_texts_.end()) return found->second;
  return absl::NotFoundError(absl::StrCat(
      "the text of score function ", digest,
      " is not known to this engine; compiling needs it, a cached kernel does "
      "not; add it to the engine, or give it to the command with "
      "--score FILE"));
}

absl::StatusOr<Entry> Engine::CompileEntry(const KernelRequest& request) {
  ASSIGN_OR_RETURN(const KernelSpec spec, ParseSpec(request.key.spec));
  ASSIGN_OR_RETURN(const std::shared_ptr<const JitLibrary> jit, Jit());
  JitRequest job;
  job.spec = request.key.spec;
  job.tile = request.key.tile;
  job.gpu = request.gpu;
  job.target = request.target;
  job.overlay = options_.templates_dir;
  job.dump_dir = options_.dump_dir;
  ASSIGN_OR_RETURN(job.score, ScoreFunctionText(spec.score));
  ASSIGN_OR_RETURN(Entry entry, jit->Compile(job));
  if (!job.overlay.empty()) {
    // Under this engine's key a later text would be another engine's kernel.
    ASSIGN_OR_RETURN(const std::string digest, FolderDigest(job.overlay));
    if (digest != overlay_digest_) {
      return absl::FailedPreconditionError(absl::StrCat(
          "templates folder ", job.overlay,
          " has changed since the engine was created; kernels are cached by "
          "what it held then; create the engine again"));
    }
  }
  // Without a date: machines that compile one key write the same bytes.
  entry.key = request.key;
  return entry;
}

void Engine::LogSource(const KernelRequest& request, KernelSource source,
                       double milliseconds) const {
  if (options_.verbose < (source == KernelSource::kMemory ? 2 : 1)) return;
  const std::string line = absl::StrCat(
      source == KernelSource::kCompiled ? "compiled "
      : source == KernelSource::kDisk   ? "loaded from a cache folder "
      : source == KernelSource::kWaited ? "waited for another thread's "
                                        : "found in memory ",
      KeyText(request.key), " in ", milliseconds, " ms");
  if (options_.log) return options_.log(line);
  std::fprintf(stderr, "kvforge: %s\n", line.c_str());
}

absl::StatusOr<std::shared_ptr<const Entry>> Engine::Fetch(
    const KernelRequest& request, KernelSource* source) {
  KernelSource from = KernelSource::kMemory;
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(std::shared_ptr<const Entry> entry,
                   store_->Get(request, &from));
  LogSource(request, from, MillisecondsSince(start));
  if (source != nullptr) *source = from;
  std::lock_guard lock(mutex_);
  statistics_.disk_hits += from == KernelSource::kDisk;
  statistics_.waits += from == KernelSource::kWaited;
  return entry;
}

absl::StatusOr<std::shared_ptr<PreparedKernel>> Engine::Load(
    const KernelSpec& spec, const Tile& tile,
    std::shared_ptr<const Entry> entry) {
  const auto start = std::chrono::steady_clock::now();
  auto kernel = std::make_shared<PreparedKernel>();
  kernel->spec_ = spec;
  kernel->tile_ = tile;
  kernel->seed_ = options_.seed;
  kernel->has_tensor_copies_ = gpu_.has_tensor_copies;
  kernel->multiprocessors_ = multiprocessors_;
  if (device_ != nullptr) {
    ASSIGN_OR_RETURN(kernel->cuda_,
                     Module::Load(device_, entry->payload, entry->symbol,
                                  entry->facts.dynamic_shared_bytes));
  } else {
    ASSIGN_OR_RETURN(const std::shared_ptr<const JitLibrary> jit, Jit());
    ASSIGN_OR_RETURN(kernel->host_,
                     jit->LoadHost(entry->payload, entry->symbol));
  }
  kernel->entry_ = std::move(entry);
  std::lock_guard lock(mutex_);
  statistics_.load_ms += MillisecondsSince(start);
  return kernel;
}

absl::StatusOr<std::shared_ptr<const PreparedKernel>> Engine::Prepare(
    const KernelSpec& spec) {
  RETURN_IF_ERROR(ValidateSpec(spec));
  ASSIGN_OR_RETURN(const Tile tile, ResolveTile(spec, nullptr));
  return Prepare(spec, tile);
}

absl::StatusOr<std::shared_ptr<const PreparedKernel>> Engine::PrepareFor(
    const KernelSpec& spec, const TuneShape& shape) {
  RETURN_IF_ERROR(ValidateSpec(spec));
  ASSIGN_OR_RETURN(const Tile tile, ResolveTile(spec, &shape));
  return Prepare(spec, tile);
}

std::optional<CandidateParts> Engine::Tuned(const KernelSpec& spec,
                                            const TuneShape* shape) const {
  if (winners_.all().empty()) return std::nullopt;
  const Winner* winner =
      winners_.Find(fingerprint_, spec.Text(),
                    shape == nullptr ? "" : shape->Bucket().Text());
  if (winner == nullptr) return std::nullopt;
  const absl::StatusOr<CandidateParts> parts =
      ParseCandidate(winner->candidate);
  if (!parts.ok()) return std::nullopt;
  const absl::StatusOr<Tile> tile = ParseTile(parts->tile);
  if (!tile.ok()) return std::nullopt;
  const KeyFields key =
      Key(spec, *tile, gpu_, device_ != nullptr ? "cuda" : "host");
  if (KeyDigest(key) != winner->version) return std::nullopt;
  return *parts;
}

absl::Status Engine::CheckServed(const KernelSpec& spec) const {
  RETURN_IF_ERROR(ValidateSpec(spec));
  return SelectTile(spec, gpu_).status();
}

absl::StatusOr<Tile> Engine::ResolveTile(const KernelSpec& spec,
                                         const TuneShape* shape) {
  if (const std::optional<CandidateParts> tuned = Tuned(spec, shape)) {
    ASSIGN_OR_RETURN(const Tile tile, ParseTile(tuned->tile));
    RETURN_IF_ERROR(CheckTile(spec, tile, gpu_));
    return tile;
  }
  ASSIGN_OR_RETURN(const TileCandidate choice, SelectTile(spec, gpu_));
  if (options_.tune_db.empty() || !options_.log) return choice.tile;
  std::string what = absl::StrCat(
      spec.Text(),
      shape == nullptr ? "" : absl::StrCat(" at ", shape->Bucket().Text()));
  {
    std::lock_guard lock(mutex_);
    if (!untuned_.insert(what).second) return choice.tile;
  }
  options_.log(absl::StrCat("no winner for ", what, " of this build on ",
                            fingerprint_, " in ", options_.tune_db,
                            ": the selector's tile ", choice.tile.Text()));
  return choice.tile;
}

absl::StatusOr<std::shared_ptr<const PreparedKernel>> Engine::Prepare(
    const KernelSpec& spec, const Tile& tile) {
  RETURN_IF_ERROR(ValidateSpec(spec));
  KernelRequest request;
  request.target = device_ != nullptr ? "cuda" : "host";
  request.gpu = std::string(gpu_.name);
  request.key = Key(spec, tile, gpu_, request.target);
  const std::string digest = KeyDigest(request.key);
  std::shared_ptr<const PreparedKernel> ready;
  {
    std::lock_guard lock(mutex_);
    const auto loaded = loaded_.find(digest);
    if (loaded != loaded_.end()) {
      ++statistics_.memory_hits;
      ready = loaded->second;
    }
  }
  if (ready != nullptr) {
    LogSource(request, KernelSource::kMemory, 0);
    return ready;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const Entry> entry, Fetch(request, nullptr));
  absl::StatusOr<std::shared_ptr<PreparedKernel>> kernel =
      Load(spec, tile, std::move(entry));
  if (!kernel.ok() && absl::IsDataLoss(kernel.status())) {
    // A damaged entry is a miss: set it aside and get the kernel once more.
    store_->Discard(request.key, kernel.status().message());
    ASSIGN_OR_RETURN(entry, Fetch(request, nullptr));
    kernel = Load(spec, tile, std::move(entry));
  }
  RETURN_IF_ERROR(kernel.status());
  // Two threads may have loaded the same kernel; all callers get the first.
  std::lock_guard lock(mutex_);
  return loaded_.try_emplace(digest, *std::move(kernel)).first->second;
}

absl::StatusOr<std::shared_ptr<const Entry>> Engine::Compile(
    const KernelSpec& spec, const GpuTarget& gpu, absl::string_view target,
    KernelSource* source) {
  RETURN_IF_ERROR(ValidateSpec(spec));
  ASSIGN_OR_RETURN(const TileCandidate choice, SelectTile(spec, gpu));
  return Compile(spec, choice.tile, gpu, target, source);
}

absl::StatusOr<std::shared_ptr<const Entry>> Engine::Compile(
    const KernelSpec& spec, const Tile& tile, const GpuTarget& gpu,
    absl::string_view target, KernelSource* source) {
  RETURN_IF_ERROR(ValidateSpec(spec));
  KernelRequest request;
  request.key = Key(spec, tile, gpu, target);
  request.gpu = std::string(gpu.name);
  request.target = std::string(target);
  return Fetch(request, source);
}

EngineStatistics Engine::statistics() const {
  std::lock_guard lock(mutex_);
  EngineStatistics statistics = statistics_;
  statistics.compiles = store_->compile_count();
  return statistics;
}

}  // namespace kvforge
