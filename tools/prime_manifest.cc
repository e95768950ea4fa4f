#include "tools/prime_manifest.h"

#include <errno.h>
#include <stdio.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/digest.h"
#include "runtime/base/file.h"
#include "runtime/base/status_macros.h"
#include "runtime/cache/eviction.h"
#include "runtime/cache/file_lock.h"

namespace kvforge {
namespace {

constexpr char kHostPrefix[] = "host-";
// An update takes milliseconds.
constexpr absl::Duration kLockTimeout = absl::Seconds(30);

absl::Status ReadManifest(const std::string& path,
                          std::vector<PrimedKernel>& kernels) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const nlohmann::json json =
      nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat(path,
                   " is no manifest that `kvforge prime` wrote; prime "
                   "the folder again or remove the file"));
  if (!json.is_object() || !json.contains("kernels") ||
      !json["kernels"].is_array()) {
    return bad;
  }
  for (const nlohmann::json& item : json["kernels"]) {
    if (!item.is_object()) return bad;
    for (const char* field : {"spec", "gpu", "key", "digest", "tile"}) {
      if (!item.contains(field) || !item[field].is_string()) return bad;
    }
    for (const char* field : {"registers", "shared_bytes", "spill_bytes"}) {
      if (!item.contains(field) || !item[field].is_number_integer()) return bad;
    }
    PrimedKernel kernel;
    kernel.spec = item["spec"];
    kernel.gpu = item["gpu"];
    kernel.key = item["key"];
    kernel.payload_digest = item["digest"];
    kernel.tile = item["tile"];
    kernel.registers = item["registers"];
    kernel.shared_bytes = item["shared_bytes"];
    kernel.spill_bytes = item["spill_bytes"];
    kernels.push_back(std::move(kernel));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PrimeTarget> ParsePrimeTarget(absl::string_view name) {
  PrimeTarget target;
  target.name = std::string(name);
  target.target = absl::ConsumePrefix(&name, kHostPrefix) ? "host" : "cuda";
  ASSIGN_OR_RETURN(target.gpu, FindTarget(name));
  return target;
}

std::string TargetName(const PrimeTarget& target) {
  return absl::StrCat(target.target == "host" ? kHostPrefix : "",
                      target.gpu->name);
}

PrimedKernel Describe(absl::string_view gpu, const Entry& entry) {
  PrimedKernel kernel;
  kernel.spec = entry.key.spec;
  kernel.gpu = std::string(gpu);
  kernel.key = KeyDigest(entry.key);
  kernel.payload_digest = Sha256Hex(entry.payload);
  kernel.tile = entry.key.tile;
  kernel.registers = entry.facts.registers;
  kernel.shared_bytes = entry.facts.dynamic_shared_bytes;
  kernel.spill_bytes = entry.facts.spill_bytes;
  return kernel;
}

absl::StatusOr<std::vector<PrimedKernel>> ReadPrimeManifests(
    const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end;
       !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (absl::StartsWith(name, "manifest") && absl::EndsWith(name, ".json")) {
      paths.push_back(it->path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<PrimedKernel> kernels;
  for (const std::string& path : paths) {
    RETURN_IF_ERROR(ReadManifest(path, kernels));
  }
  return kernels;
}

absl::Status UpdatePrimeManifest(const std::string& folder,
                                 const std::string& file_name,
                                 const std::vector<PrimedKernel>& kernels,
                                 std::string* warning) {
  const std::string path = absl::StrCat(folder, "/", file_name);
  const std::string locks = absl::StrCat(folder, "/", kLockFolder);
  RETURN_IF_ERROR(MakeFolders(locks));
  ASSIGN_OR_RETURN(
      const FileLock lock,
      FileLock::Acquire(absl::StrCat(locks, "/", file_name, kLockSuffix),
                        kLockTimeout));
  std::vector<PrimedKernel> all;
  const absl::Status read = ReadManifest(path, all);
  if (absl::IsInvalidArgument(read)) {
    const std::string aside = absl::StrCat(path, kDamagedSuffix);
    if (rename(path.c_str(), aside.c_str()) != 0) {
      return FileError(errno, "cannot move aside", path);
    }
    *warning = absl::StrCat(path,
                            " is no manifest that `kvforge prime` wrote; moved "
                            "to ",
                            aside, "; prime again what it may have listed");
    all.clear();
  } else if (!read.ok() && !absl::IsNotFound(read)) {
    return read;
  }
  all.insert(all.end(), kernels.begin(), kernels.end());
  std::map<std::tuple<std::string, std::string, std::string>, PrimedKernel>
      latest;
  for (const PrimedKernel& kernel : all) {
    latest[{kernel.spec, kernel.gpu, kernel.tile}] = kernel;
  }
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [name, kernel] : latest) {
    list.push_back({{"spec", kernel.spec},
                    {"gpu", kernel.gpu},
                    {"key", kernel.key},
                    {"digest", kernel.payload_digest},
                    {"tile", kernel.tile},
                    {"registers", kernel.registers},
                    {"shared_bytes", kernel.shared_bytes},
                    {"spill_bytes", kernel.spill_bytes}});
  }
  return WriteFileAtomically(path,
                             nlohmann::json{{"kernels", list}}.dump(1) + "\n");
}

void AppendPrimeHistory(const std::string& folder, const PrimeRun& run) {
  const nlohmann::json line = {
      {"started",
       absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", run.start, absl::UTCTimeZone())},
      {"seconds", run.seconds},
      {"shard", run.shard},
      {"compiled", run.compiled},
      {"found", run.found},
      {"failed", run.failed}};
  const std::string path = absl::StrCat(folder, "/history.jsonl");
  // One appending write a line: processes do not mix theirs.
  if (std::FILE* file = std::fopen(path.c_str(), "ae")) {
    std::fputs((line.dump() + "\n").c_str(), file);
    std::fclose(file);
  }
}

}  // namespace kvforge
