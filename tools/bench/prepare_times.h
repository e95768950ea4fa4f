// How long kernels take from a cache on disk to being ready, in a process that
// has done nothing before: what a child of `kvforge bench` measures, and how it
// tells its parent.
#ifndef KVFORGE_TOOLS_BENCH_PREPARE_TIMES_H_
#define KVFORGE_TOOLS_BENCH_PREPARE_TIMES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/target/target.h"
#include "compiler/tile/tile.h"
#include "kernels/engine.h"
#include "tools/bench/case_table.h"
#include "tools/bench/report.h"

namespace kvforge::bench {

struct PreparedTime {
  std::string name;    // of the case
  std::string error;   // why it was not prepared; the rest is 0 then
  double us = 0;       // until the kernel could be launched; of fetch: was read
  double load_us = 0;  // of these by the driver
  int registers = 0;   // a thread
  int shared_bytes = 0;
  int spill_bytes = 0;

  bool operator==(const PreparedTime&) const = default;
};

struct PrepareTimes {
  std::string gpu;              // "NVIDIA H200"; of fetch empty
  int driver_cuda_version = 0;  // 13000 for CUDA 13.0
  std::vector<PreparedTime> kernels;
  std::vector<std::string> compilers;  // MappedCompilers at the end

  bool operator==(const PrepareTimes&) const = default;
};

// The target that fetch cases read entries of: "cuda" or "host".
struct FetchTarget {
  const GpuTarget* gpu = nullptr;
  std::string target;
};

// Prepares (kPrepare, by an engine on a GPU) or reads and verifies (kFetch)
// each case's kernel once, in order. `tile`: of decode and extend; else the
// engine's choice.
absl::StatusOr<PrepareTimes> TimePrepares(Engine& engine,
                                          const FetchTarget& fetch,
                                          const std::vector<BenchCase>& cases,
                                          const std::optional<Tile>& tile);

// Libraries that compile (LLVM, MLIR, Clang, NVRTC, our own) among those that a
// process has mapped. `maps`: its /proc/PID/maps. Each once, by path.
std::vector<std::string> MappedCompilers(absl::string_view maps);

std::string ToJson(const PrepareTimes& times);
absl::StatusOr<PrepareTimes> PrepareTimesFromJson(absl::string_view text);

// Runs `command` (a program and its arguments) with nothing compiled there and
// returns what it printed. kInternal with its errors where it fails.
absl::StatusOr<PrepareTimes> TimesOfChild(
    const std::vector<std::string>& command);

// One result a case of what several processes found: medians, the largest, and
// an error where one of them failed or had a compiler mapped.
std::vector<CaseResult> CombineTimes(const std::vector<PrepareTimes>& runs,
                                     const std::vector<BenchCase>& cases);

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_PREPARE_TIMES_H_
