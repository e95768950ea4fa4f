// Every environment variable that kvforge reads, in one struct. getenv appears
// in no other file. A knob never takes a kernel's results out of their bounds.
#ifndef KVFORGE_RUNTIME_BASE_KNOBS_H_
#define KVFORGE_RUNTIME_BASE_KNOBS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvforge {

inline constexpr int64_t kDefaultCacheBytes = int64_t{2} << 30;

struct Knobs {
  // KVFORGE_CACHE_DIR: folders of compiled kernels, separated by ':'. The first
  // is written to; the others are primed ones and only read. Unset:
  // $XDG_CACHE_HOME/kvforge, else $HOME/.cache/kvforge, else no cache. Empty:
  // no cache.
  std::vector<std::string> cache_dirs;
  // KVFORGE_CACHE_TRUSTED: those of cache_dirs, separated by ':', whose entries
  // are loaded whoever owns them.
  std::vector<std::string> trusted_cache_dirs;
  // KVFORGE_CACHE_BYTES: cap of the first cache folder, with an optional suffix
  // K, M or G (powers of 1024); 0 = no cap.
  int64_t cache_bytes = kDefaultCacheBytes;
  // KVFORGE_DUMP_DIR: folder for each compile's text and payload; "" = none.
  std::string dump_dir;
  // KVFORGE_RECOMPILE=1: ignore entries on disk, still write them.
  bool recompile = false;
  // KVFORGE_VERBOSE: 1 = a line a compile or load, 2 = also a line a cache hit.
  int verbose = 0;
  // KVFORGE_TEMPLATES: folder whose files replace embedded templates of the
  // same relative path; "" = none.
  std::string templates_dir;
  // KVFORGE_JIT: path of libkvforge_jit.so. "off": strict, nothing is compiled.
  // "": the library beside libkvforge.so.
  std::string jit_path;
  // KVFORGE_TUNE_DB: file of winners that `kvforge tune --export` wrote, for
  // the tiles of this process's kernels; "" = the selector's tiles. Another
  // tile sums in another order: results stay within their bounds.
  std::string tune_db;
  // CUDA_HOME, else CUDA_PATH: a toolkit whose NVRTC is tried first; "" = none.
  std::string cuda_home;

  bool strict() const { return jit_path == "off"; }
};

// A variable's value, or nullopt where it is unset.
using VariableLookup =
    std::function<std::optional<std::string>(absl::string_view name)>;

// kInvalidArgument names the variable, its value and what it may be.
absl::StatusOr<Knobs> ParseKnobs(const VariableLookup& lookup);

// The process's environment, read at the first call; later changes to the
// environment have no effect. Thread safe.
const absl::StatusOr<Knobs>& EnvironmentKnobs();

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_BASE_KNOBS_H_
