#include "tools/command.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "compiler/spec/kernel_spec.h"
#include "compiler/tile/tile.h"
#include "runtime/base/file.h"
#include "runtime/base/knobs.h"
#include "runtime/base/shown.h"
#include "runtime/base/status_macros.h"

namespace kvforge {

void AddCompileFlags(CLI::App& app, EngineFlags& flags) {
  app.add_option("--cache", flags.cache,
                 "Folder of compiled kernels (default: KVFORGE_CACHE_DIR)");
  app.add_option("--templates", flags.templates,
                 "Folder whose files replace device templates");
}

void AddEngineFlags(CLI::App& app, EngineFlags& flags) {
  app.add_option("--target", flags.target, "Where kernels run")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  app.add_option("--gpu", flags.gpu,
                 "GPU whose text the host target runs; see `kvforge gpus`")
      ->capture_default_str();
  app.add_option("--device", flags.device, "Ordinal of the GPU, for cuda")
      ->capture_default_str();
  app.add_flag("--strict", flags.strict,
               "Compile nothing: a kernel that is in no cache is an error");
  app.add_option("--seed", flags.seed, "Of the host target's fiber order")
      ->capture_default_str();
  AddCompileFlags(app, flags);
}

absl::Status CheckCacheFolder(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status found =
      std::filesystem::status(path, error);
  if (!std::filesystem::exists(found) || std::filesystem::is_directory(found)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(Shown(path),
                   " is a file; compiled kernels lie in a folder; name one "
                   "that is there, or a new one"));
}

absl::StatusOr<EngineOptions> OptionsFromFlags(const EngineFlags& flags) {
  ASSIGN_OR_RETURN(EngineOptions options, EngineOptionsFromEnvironment());
  options.target =
      flags.target == "cuda" ? TargetKind::kCuda : TargetKind::kHost;
  options.gpu = flags.gpu;
  options.device = flags.device;
  options.seed = flags.seed;
  if (flags.strict) options.strict = true;
  if (!flags.cache.empty()) {
    RETURN_IF_ERROR(CheckCacheFolder(flags.cache));
    ASSIGN_OR_RETURN(const Knobs knobs, EnvironmentKnobs());
    const std::vector<std::string>& trusted = knobs.trusted_cache_dirs;
    options.cache_roots = {
        {flags.cache, std::find(trusted.begin(), trusted.end(), flags.cache) !=
                          trusted.end()}};
  }
  if (!flags.templates.empty()) options.templates_dir = flags.templates;
  options.log = [](absl::string_view line) {
    std::fprintf(stderr, "kvforge: %s\n", std::string(line).c_str());
  };
  return options;
}

absl::StatusOr<std::unique_ptr<Engine>> EngineFromFlags(
    const EngineFlags& flags) {
  ASSIGN_OR_RETURN(EngineOptions options, OptionsFromFlags(flags));
  return Engine::Create(std::move(options));
}

int Fail(const absl::Status& status, ExitCode code) {
  std::fprintf(stderr, "kvforge: %s\n", std::string(status.message()).c_str());
  return code;
}

int Fail(const absl::Status& status) {
  return Fail(status,
              absl::IsUnimplemented(status) || absl::IsResourceExhausted(status)
                  ? kExitRefused
                  : kExitNoEngine);
}

namespace {

// "SPEC [TILE] [score=FILE]", FILE seen from `folder`. Errors begin with
// `where`.
absl::StatusOr<SpecLine> ParseSpecLine(absl::string_view line,
                                       const std::filesystem::path& folder,
                                       const std::string& where) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  const auto at = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(where, status.message()));
  };
  SpecLine entry;
  const absl::string_view text = words.empty() ? line : words[0];
  const absl::StatusOr<KernelSpec> spec = ParseSpec(text);
  // What is merely not served is the caller's to report with the others.
  if (!spec.ok() && !absl::IsUnimplemented(spec.status())) {
    return at(spec.status());
  }
  entry.spec = spec.ok() ? spec->Text() : std::string(text);
  for (size_t i = 1; i < words.size(); ++i) {
    absl::string_view word = words[i];
    if (absl::ConsumePrefix(&word, "score=")) {
      entry.score_file = (folder / std::string(word)).string();
      continue;
    }
    const absl::StatusOr<Tile> tile = ParseTile(word);
    if (!tile.ok()) return at(tile.status());
    entry.tile = tile->Text();
  }
  return entry;
}

}  // namespace

absl::StatusOr<std::vector<SpecLine>> ReadSpecs(
    const std::vector<std::string>& specs_or_manifests) {
  std::vector<SpecLine> specs;
  std::set<SpecLine> seen;
  const auto add = [&](absl::string_view line, const std::string& manifest,
                       const std::string& where) {
    absl::StatusOr<SpecLine> entry = ParseSpecLine(
        line, std::filesystem::path(manifest).parent_path(), where);
    if (entry.ok() && seen.insert(*entry).second) specs.push_back(*entry);
    return entry.status();
  };
  for (const std::string& argument : specs_or_manifests) {
    const absl::StatusOr<std::string> text = ReadFile(argument);
    if (!text.ok()) {
      // A SPEC has a '/', and so may a path: it is a SPEC if it parses.
      const absl::Status added = add(argument, "", "");
      if (added.ok()) continue;
      return absl::Status(
          added.code(),
          absl::StrCat("'", Shown(argument), "' is neither a file nor a SPEC: ",
                       text.status().message(),
                       "; as a SPEC: ", added.message()));
    }
    int number = 0;
    for (absl::string_view line : absl::StrSplit(*text, '\n')) {
      ++number;
      line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
      if (line.empty()) continue;
      RETURN_IF_ERROR(
          add(line, argument, absl::StrCat(argument, ":", number, ": ")));
    }
  }
  return specs;
}

absl::StatusOr<std::string> AddScoreFile(Engine& engine,
                                         const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<std::string> digest = engine.AddScoreFunction(text);
  if (digest.ok()) return digest;
  return absl::Status(digest.status().code(),
                      absl::StrCat(path, ": ", digest.status().message()));
}

void PrintJson(const nlohmann::json& document) {
  const std::string text =
      document.dump(/*indent=*/2, /*indent_char=*/' ', /*ensure_ascii=*/false,
                    nlohmann::json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

}  // namespace kvforge
