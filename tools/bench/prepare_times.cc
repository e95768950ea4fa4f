#include "tools/bench/prepare_times.h"

#include <errno.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/file.h"
#include "runtime/base/status_macros.h"
#include "runtime/cuda/device.h"

extern char** environ;

namespace kvforge::bench {
namespace {

constexpr absl::string_view kCompilerNames[] = {
    "libLLVM", "libMLIR", "libclang", "libnvrtc", "libkvforge_jit"};

absl::StatusOr<LaunchFacts> Ready(Engine& engine, const FetchTarget& fetch,
                                  const BenchCase& what,
                                  const std::optional<Tile>& tile) {
  const KernelSpec spec = what.Spec();
  const bool with_tile = tile.has_value() && what.kernel != KernelKind::kStore;
  if (what.kind == CaseKind::kPrepare) {
    ASSIGN_OR_RETURN(
        const std::shared_ptr<const PreparedKernel> kernel,
        with_tile ? engine.Prepare(spec, *tile) : engine.Prepare(spec));
    return kernel->facts();
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const Entry> entry,
                   with_tile
                       ? engine.Compile(spec, *tile, *fetch.gpu, fetch.target)
                       : engine.Compile(spec, *fetch.gpu, fetch.target));
  return entry->facts;
}

PreparedTime TimeOne(Engine& engine, const FetchTarget& fetch,
                     const BenchCase& what, const std::optional<Tile>& tile) {
  PreparedTime time;
  time.name = what.Name();
  const double load_ms = engine.statistics().load_ms;
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<LaunchFacts> facts = Ready(engine, fetch, what, tile);
  const auto end = std::chrono::steady_clock::now();
  if (!facts.ok()) {
    time.error = std::string(facts.status().message());
    return time;
  }
  time.us = std::chrono::duration<double, std::micro>(end - start).count();
  time.load_us = 1e3 * (engine.statistics().load_ms - load_ms);
  time.registers = facts->registers;
  time.shared_bytes = facts->static_shared_bytes + facts->dynamic_shared_bytes;
  time.spill_bytes = facts->spill_bytes;
  return time;
}

}  // namespace

absl::StatusOr<PrepareTimes> TimePrepares(Engine& engine,
                                          const FetchTarget& fetch,
                                          const std::vector<BenchCase>& cases,
                                          const std::optional<Tile>& tile) {
  if (!engine.options().strict) {
    return absl::FailedPreconditionError(
        "bench: prepare and fetch measure kernels that a cache has; an engine "
        "that compiles would measure the compiler; pass --strict");
  }
  PrepareTimes times;
  if (const DevicePtr& device = engine.device(); device != nullptr) {
    times.gpu = device->name();
    times.driver_cuda_version = device->api().version;
  }
  for (const BenchCase& what : cases) {
    times.kernels.push_back(TimeOne(engine, fetch, what, tile));
  }
  ASSIGN_OR_RETURN(const std::string maps, ReadFile("/proc/self/maps"));
  times.compilers = MappedCompilers(maps);
  return times;
}

std::vector<std::string> MappedCompilers(absl::string_view maps) {
  std::set<std::string> found;
  for (const absl::string_view line : absl::StrSplit(maps, '\n')) {
    const size_t slash = line.rfind('/');
    if (slash == absl::string_view::npos) continue;
    const absl::string_view name = line.substr(slash + 1);
    if (std::any_of(std::begin(kCompilerNames), std::end(kCompilerNames),
                    [&](absl::string_view compiler) {
                      return absl::StartsWith(name, compiler);
                    })) {
      found.emplace(line.substr(line.find('/')));
    }
  }
  return {found.begin(), found.end()};
}

std::string ToJson(const PrepareTimes& times) {
  nlohmann::json kernels = nlohmann::json::array();
  for (const PreparedTime& time : times.kernels) {
    kernels.push_back({{"name", time.name},
                       {"error", time.error},
                       {"us", time.us},
                       {"load_us", time.load_us},
                       {"registers", time.registers},
                       {"shared_bytes", time.shared_bytes},
                       {"spill_bytes", time.spill_bytes}});
  }
  const nlohmann::json document = {
      {"gpu", times.gpu},
      {"driver_cuda_version", times.driver_cuda_version},
      {"kernels", kernels},
      {"compilers", times.compilers}};
  return document.dump(-1, ' ', false,
                       nlohmann::json::error_handler_t::replace) +
         "\n";
}

absl::StatusOr<PrepareTimes> PrepareTimesFromJson(absl::string_view text) {
  PrepareTimes times;
  // The library's accessors throw where a part is missing or of another type.
  try {
    const nlohmann::json document =
        nlohmann::json::parse(text.begin(), text.end());
    times.gpu = document.at("gpu");
    times.driver_cuda_version = document.at("driver_cuda_version");
    for (const nlohmann::json& json : document.at("kernels")) {
      times.kernels.push_back({json.at("name"), json.at("error"), json.at("us"),
                               json.at("load_us"), json.at("registers"),
                               json.at("shared_bytes"),
                               json.at("spill_bytes")});
    }
    for (const nlohmann::json& path : document.at("compilers")) {
      times.compilers.push_back(path);
    }
  } catch (const nlohmann::json::exception& error) {
    return absl::InternalError(absl::StrCat(
        "bench: a process of its own printed no times: ", error.what()));
  }
  return times;
}

absl::StatusOr<PrepareTimes> TimesOfChild(
    const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  // Whatever the parent's environment says: a child compiles nothing.
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!absl::StartsWith(*variable, "KVFORGE_JIT=")) {
      environment.push_back(*variable);
    }
  }
  std::string jit_off = "KVFORGE_JIT=off";
  environment.push_back(jit_off.data());
  environment.push_back(nullptr);

  int ends[2];
  if (pipe(ends) != 0) return FileError(errno, "cannot make", "a pipe");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, read_end.get());
  posix_spawn_file_actions_addclose(&actions, write_end.get());
  pid_t child = 0;
  const int failed = posix_spawn(&child, command[0].c_str(), &actions, nullptr,
                                 arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  write_end.Close();
  if (failed != 0) return FileError(failed, "cannot run", command[0]);
  constexpr int64_t kMostBytes = int64_t{1} << 24;
  const absl::StatusOr<std::string> printed =
      ReadDescriptor(read_end.get(), "what a child printed", kMostBytes);
  int state = 0;
  while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  RETURN_IF_ERROR(printed.status());
  if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) {
    return absl::InternalError(absl::StrCat(
        "bench: a process of its own, `", absl::StrJoin(command, " "),
        "`, ended with ",
        WIFEXITED(state) ? absl::StrCat("exit code ", WEXITSTATUS(state))
                         : absl::StrCat("signal ", WTERMSIG(state)),
        "; its errors are above"));
  }
  return PrepareTimesFromJson(*printed);
}

std::vector<CaseResult> CombineTimes(const std::vector<PrepareTimes>& runs,
                                     const std::vector<BenchCase>& cases) {
  std::vector<CaseResult> results;
  for (const BenchCase& what : cases) {
    CaseResult result;
    result.name = what.Name();
    std::vector<double> whole, read;
    for (const PrepareTimes& run : runs) {
      if (!run.compilers.empty()) {
        result.error =
            absl::StrCat("the process had ", absl::StrJoin(run.compilers, ", "),
                         " mapped; nothing is to be compiled there");
      }
      for (const PreparedTime& time : run.kernels) {
        if (time.name != result.name) continue;
        if (!time.error.empty()) result.error = time.error;
        whole.push_back(time.us);
        read.push_back(time.us - time.load_us);
        result.registers = time.registers;
        result.shared_bytes = time.shared_bytes;
        result.spill_bytes = time.spill_bytes;
      }
    }
    if (result.error.empty() && !whole.empty()) {
      result.detail =
          absl::StrFormat("most %.2f ms, over %d processes; no compiler mapped",
                          *std::max_element(whole.begin(), whole.end()) / 1e3,
                          static_cast<int>(whole.size()));
      result.one = Summarise(std::move(whole));
      result.row = Summarise(std::move(read));
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace kvforge::bench
