// What a user creates first: a target (a GPU, or the CPU running the text of a
// named GPU) and the store of its compiled kernels.
//
// Prepare resolves the tile, finds or compiles the kernel and loads it, which
// may take seconds. Running a prepared kernel (store.h, decode.h, extend.h,
// merge.h) only launches: no allocation, no host synchronisation, no compile,
// so launches may be captured into a CUDA graph.
//
// All calls are safe from several threads. A PreparedKernel must not outlive
// the process's use of its device; it may outlive its Engine.
#ifndef KVFORGE_KERNELS_ENGINE_H_
#define KVFORGE_KERNELS_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/spec/kernel_spec.h"
#include "compiler/target/target.h"
#include "compiler/tile/tile.h"
#include "kernels/known_views.h"
#include "runtime/kernel_store.h"
#include "runtime/tensor_map.h"
#include "runtime/tune/shape.h"
#include "runtime/tune/winners.h"

namespace kvforge {

class Device;
class HostKernel;
class JitLibrary;
class Module;

enum class TargetKind { kHost, kCuda };

struct EngineOptions {
  TargetKind target = TargetKind::kHost;
  // The GPU whose text the CPU runs; kHost only.
  std::string gpu = "sm_80";
  int device = 0;  // ordinal; kCuda only
  // Folders of compiled kernels: the first is written to, the others only read.
  // Empty: no disk cache. CacheRootsFromEnvironment gives the user's.
  std::vector<CacheRoot> cache_roots;
  int64_t cache_byte_cap = kDefaultCacheBytes;  // of the first; 0 = none
  bool strict = false;  // compile nothing: a miss is kNotFound
  // Folder whose files replace embedded templates; "" = none. Its digest is
  // part of the cache key.
  std::string templates_dir;
  std::string jit_path;  // libkvforge_jit.so; "" = beside this library
  std::string dump_dir;  // text and payload of each compile; "" = none
  // File of winners that `kvforge tune --export` wrote; "" = none. Read once,
  // never written: nothing is tuned here.
  std::string tune_db;
  bool recompile = false;
  // Lines to `log`, or to stderr where it is null: 1 = each compile and load,
  // 2 = also each kernel that memory had.
  int verbose = 0;
  uint64_t seed = 1;  // of the fiber order; kHost only
  // Lines for a log, from any thread; may be null.
  std::function<void(absl::string_view line)> log;
};

// Options with cache folders, overlay, JIT library, dump folder, winners and
// strictness from the environment (runtime/base/knobs.h).
absl::StatusOr<EngineOptions> EngineOptionsFromEnvironment();

struct EngineStatistics {
  int64_t compiles = 0;     // this engine's, failed ones included
  int64_t disk_hits = 0;    // kernels loaded from a cache folder
  int64_t memory_hits = 0;  // Prepare calls that found a loaded kernel
  // Calls that got a kernel which another thread was compiling or reading.
  int64_t waits = 0;
  double compile_ms = 0;  // summed over threads
  double load_ms = 0;
};

// A loaded kernel with everything its launches need.
class PreparedKernel {
 public:
  PreparedKernel();
  ~PreparedKernel();
  PreparedKernel(const PreparedKernel&) = delete;
  PreparedKernel& operator=(const PreparedKernel&) = delete;

  const KernelSpec& spec() const { return spec_; }
  const Tile& tile() const { return tile_; }
  const LaunchFacts& facts() const { return entry_->facts; }
  const KeyFields& key() const { return entry_->key; }

  // Queues `blocks` blocks on `stream` (a CUstream) and returns; on the host
  // target `stream` is ignored and the launch has finished on return. `args` is
  // the argument struct of the kernel. 0 blocks: nothing is launched.
  absl::Status Launch(int64_t blocks, const void* args, size_t args_bytes,
                      void* stream) const;

  // Of the kernel's GPU.
  int multiprocessors() const { return multiprocessors_; }

  // Whether the kernel's GPU has tensor copies.
  bool has_tensor_copies() const { return has_tensor_copies_; }
  // What this kernel's tensor copies read `box` by. Takes the driver
  // microseconds.
  absl::Status EncodeMap(const TensorBox& box, TensorMap& map) const;
  // Of this kernel's launches.
  KnownViews& known_views() const { return known_views_; }

  // One past the highest shared byte that any launch accessed; kHost only,
  // 0 before the first launch.
  int shared_high_water() const { return shared_high_water_.load(); }

 private:
  friend class Engine;

  KernelSpec spec_;
  Tile tile_;
  std::shared_ptr<const Entry> entry_;
  std::unique_ptr<Module> cuda_;  // one of the two
  std::unique_ptr<HostKernel> host_;
  uint64_t seed_ = 0;
  bool has_tensor_copies_ = false;
  int multiprocessors_ = 1;
  mutable KnownViews known_views_;
  mutable std::atomic<uint64_t> launches_ = 0;
  mutable std::atomic<int> shared_high_water_ = 0;
};

class Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Create(EngineOptions options);
  ~Engine();

  // OK if a kernel of `spec` can be generated for this engine's GPU, else the
  // refusal that Prepare would give: what to ask at start-up. Compiles nothing.
  // Errors  kInvalidArgument, kUnimplemented, kResourceExhausted of Prepare
  absl::Status CheckServed(const KernelSpec& spec) const;

  // The tile is the one that won on this device in launches of any shape
  // (options.tune_db), for exactly this kernel; else the selector's, and a line
  // for the log says so where there is a file of winners.
  // Errors  kInvalidArgument    the spec breaks a rule of kernel_spec.h
  //         kUnimplemented      no kernel for this format, feature or GPU
  //         kResourceExhausted  not even the smallest tile fits
  //         kNotFound           no cache folder has it, and this engine is
  //                             strict or lacks its score function's text
  //         kInternal           the compiler rejected our text; log inside
  absl::StatusOr<std::shared_ptr<const PreparedKernel>> Prepare(
      const KernelSpec& spec);
  // The same with a tile other than the selector's.
  absl::StatusOr<std::shared_ptr<const PreparedKernel>> Prepare(
      const KernelSpec& spec, const Tile& tile);
  // The same with the tile that won in launches of about `shape`, else the
  // selector's. The kernel serves any shape.
  absl::StatusOr<std::shared_ptr<const PreparedKernel>> PrepareFor(
      const KernelSpec& spec, const TuneShape& shape);

  // Makes the text of a score function (docs/score.md) known to this engine and
  // returns its digest, for KernelSpec::score. Compiling a SPEC with a score
  // function needs its text; a kernel from a cache does not.
  // Errors  kInvalidArgument     the text is no score function
  //         kFailedPrecondition  strict: there is no compiler to read it with
  absl::StatusOr<std::string> AddScoreFunction(absl::string_view text);

  // The compiled kernel, not loaded: what priming needs. Also for a GPU other
  // than the engine's own (`target`: "cuda" or "host").
  absl::StatusOr<std::shared_ptr<const Entry>> Compile(
      const KernelSpec& spec, const GpuTarget& gpu, absl::string_view target,
      KernelSource* source = nullptr);
  // The same with a tile other than the selector's.
  absl::StatusOr<std::shared_ptr<const Entry>> Compile(
      const KernelSpec& spec, const Tile& tile, const GpuTarget& gpu,
      absl::string_view target, KernelSource* source = nullptr);

  // The key that Prepare looks up.
  KeyFields Key(const KernelSpec& spec, const Tile& tile, const GpuTarget& gpu,
                absl::string_view target) const;

  // The candidate that won on this device in launches of about `shape`, or of
  // any where it is null; nullopt where options.tune_db has none for exactly
  // this kernel.
  std::optional<CandidateParts> Tuned(const KernelSpec& spec,
                                      const TuneShape* shape) const;
  // What winners are found by; "host sm_80" on the CPU.
  const std::string& fingerprint() const { return fingerprint_; }

  // Limits are the driver's on a live device.
  const GpuTarget& gpu() const { return gpu_; }
  TargetKind target() const { return options_.target; }
  // Multiprocessors that split decode is sized for.
  int multiprocessors() const { return multiprocessors_; }
  EngineStatistics statistics() const;
  const EngineOptions& options() const { return options_; }
  DiskCache& disk() { return store_->disk(); }
  // The GPU; null on the host target.
  const std::shared_ptr<const Device>& device() const { return device_; }
  // Canonical text of a score function that was added; kNotFound, saying how to
  // add it, for another digest. "" for "".
  absl::StatusOr<std::string> ScoreFunctionText(absl::string_view digest) const;
  // Opens libkvforge_jit on the first call.
  absl::StatusOr<std::shared_ptr<const JitLibrary>> Jit();

 private:
  explicit Engine(EngineOptions options);

  // Says where a kernel came from, as options_.verbose asks.
  void LogSource(const KernelRequest& request, KernelSource source,
                 double milliseconds) const;
  absl::StatusOr<Entry> CompileEntry(const KernelRequest& request);
  absl::StatusOr<std::shared_ptr<PreparedKernel>> Load(
      const KernelSpec& spec, const Tile& tile,
      std::shared_ptr<const Entry> entry);
  absl::StatusOr<std::shared_ptr<const Entry>> Fetch(
      const KernelRequest& request, KernelSource* source);
  // The winner's tile, else the selector's.
  absl::StatusOr<Tile> ResolveTile(const KernelSpec& spec,
                                   const TuneShape* shape);

  const EngineOptions options_;
  GpuTarget gpu_ = {};
  int multiprocessors_ = 0;
  std::string build_id_;
  std::string overlay_digest_;  // of templates_dir as the keys know it
  std::string fingerprint_;
  Winners winners_;  // of options_.tune_db
  std::shared_ptr<const Device> device_;
  std::unique_ptr<KernelStore> store_;

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::shared_ptr<const JitLibrary> jit_;
  std::map<std::string, std::shared_ptr<const PreparedKernel>> loaded_;
  std::map<std::string, std::string, std::less<>> score_texts_;  // by digest
  std::set<std::string> untuned_;  // SPEC and shape that the log has named
  EngineStatistics statistics_;
};

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_ENGINE_H_
