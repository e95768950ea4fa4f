// What the subcommands of `kvforge` share. One file a subcommand; each has an
// Add function that declares its options and sets `run` for main to call.
#ifndef KVFORGE_TOOLS_COMMAND_H_
#define KVFORGE_TOOLS_COMMAND_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/engine.h"

namespace kvforge {

enum ExitCode {
  kExitOk = 0,
  kExitFailed = 1,      // a mismatch, a failed compile, a damaged entry
  kExitUnreadable = 2,  // an input file is missing or not of its form
  kExitRefused = 3,     // something asked for is not served
  kExitNoEngine = 4,    // no GPU, no compiler, a wrong option's value
};

// The chosen subcommand: returns the process's exit code.
using Command = std::function<int()>;

// Options of the commands that run or compile kernels.
struct EngineFlags {
  std::string target = "host";
  std::string gpu = "sm_80";
  int device = 0;
  std::string cache;      // "" = the environment's
  std::string templates;  // "" = the environment's
  bool strict = false;
  uint64_t seed = 1;
};

// --cache and --templates only, or also --target, --gpu, --device, --strict and
// --seed.
void AddCompileFlags(CLI::App& app, EngineFlags& flags);
void AddEngineFlags(CLI::App& app, EngineFlags& flags);

// kInvalidArgument for a path that is there and no folder.
absl::Status CheckCacheFolder(const std::string& path);

// The environment's options with the flags on top; log lines go to stderr.
absl::StatusOr<EngineOptions> OptionsFromFlags(const EngineFlags& flags);
absl::StatusOr<std::unique_ptr<Engine>> EngineFromFlags(
    const EngineFlags& flags);

// Prints "kvforge: <message>" to stderr and returns the fitting code.
int Fail(const absl::Status& status, ExitCode code);
// kExitRefused for what is not served, else kExitNoEngine.
int Fail(const absl::Status& status);

// A SPEC of a list.
struct SpecLine {
  std::string spec;
  std::string tile;        // "" = the selector's
  std::string score_file;  // of its score function; "" = none is named
  auto operator<=>(const SpecLine&) const = default;
};

// SPECs of a list of SPECs and manifests: files with one SPEC a line, then
// perhaps a tile ("128x64/2/8") to take instead of the selector's, and
// score=FILE, the file of its score function seen from the manifest's folder;
// `#` starts a comment. Each once, in order. The error names file and
// line.
absl::StatusOr<std::vector<SpecLine>> ReadSpecs(
    const std::vector<std::string>& specs_or_manifests);

// The digest of the score function in `path`, which `engine` then knows. The
// error names the file.
absl::StatusOr<std::string> AddScoreFile(Engine& engine,
                                         const std::string& path);

// Prints a document and a newline. Bytes that are not UTF-8, as a file's name
// may have, print as U+FFFD.
void PrintJson(const nlohmann::json& document);

void AddBench(CLI::App& app, Command& command);
void AddCheck(CLI::App& app, Command& command);
void AddRun(CLI::App& app, Command& command);
void AddEmit(CLI::App& app, Command& command);
void AddScore(CLI::App& app, Command& command);
void AddTile(CLI::App& app, Command& command);
void AddTune(CLI::App& app, Command& command);
void AddPrime(CLI::App& app, Command& command);
void AddVerify(CLI::App& app, Command& command);
void AddWhyMiss(CLI::App& app, Command& command);
void AddCache(CLI::App& app, Command& command);
void AddGpus(CLI::App& app, Command& command);
void AddFormats(CLI::App& app, Command& command);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_COMMAND_H_
