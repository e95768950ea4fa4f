// How long a kernel takes to come into being, on one thread and without cache.
#include <time.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/target/target.h"
#include "compiler/tile/tile_selector.h"
#include "kernels/jit_loader.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/runners.h"

namespace kvforge::bench {
namespace {

constexpr int kTexts = 15;
constexpr int kCompiles = 5;

// Processor time of the whole process: what it takes on a core that nothing
// else runs on.
double ProcessMicroseconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e6 * static_cast<double>(time.tv_sec) +
         1e-3 * static_cast<double>(time.tv_nsec);
}

double Microseconds(const std::function<void()>& run) {
  const double start = ProcessMicroseconds();
  run();
  return ProcessMicroseconds() - start;
}

}  // namespace

absl::StatusOr<CaseResult> RunSpecialiseCase(Engine& engine,
                                             const std::string& gpu_name,
                                             const BenchCase& what) {
  if (engine.options().strict) {
    return absl::FailedPreconditionError(
        "bench: specialise measures the compiler, which strict mode does not "
        "open; leave out --strict and KVFORGE_JIT=off");
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const JitLibrary> jit, engine.Jit());
  ASSIGN_OR_RETURN(const GpuTarget* gpu, FindTarget(gpu_name));
  ASSIGN_OR_RETURN(const TileCandidate choice, SelectTile(what.Spec(), *gpu));
  JitRequest request;
  request.spec = what.Spec().Text();
  request.tile = choice.tile.Text();
  request.gpu = gpu_name;
  request.target = "cuda";
  request.overlay = engine.options().templates_dir;

  absl::Status status;
  const auto text = [&] { status.Update(jit->Emit(request, "cuda").status()); };
  const double first_us = Microseconds(text);
  std::vector<double> texts;
  for (int i = 0; i < kTexts && status.ok(); ++i) {
    texts.push_back(Microseconds(text));
  }
  RETURN_IF_ERROR(status);
  CaseResult result;
  result.name = what.Name();
  result.one = Summarise(std::move(texts));
  std::vector<double> builds;
  for (int i = 0; i < kCompiles; ++i) {
    LaunchFacts facts;
    const double us = Microseconds([&] {
      const absl::StatusOr<Entry> entry = jit->Compile(request);
      status.Update(entry.status());
      if (entry.ok()) facts = entry->facts;
    });
    RETURN_IF_ERROR(status);
    builds.push_back(us - result.one.median);
    result.registers = facts.registers;
    result.shared_bytes =
        facts.static_shared_bytes + facts.dynamic_shared_bytes;
    result.spill_bytes = facts.spill_bytes;
  }
  const double first_build_ms = builds[0] / 1e3;
  result.row = Summarise(std::move(builds));
  result.detail = absl::StrFormat("first here: text %.1f ms, cubin %.0f ms; %s",
                                  first_us / 1e3, first_build_ms, gpu_name);
  return result;
}

}  // namespace kvforge::bench
