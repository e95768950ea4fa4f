// `kvforge cache`, `verify` and `why-miss`: care of folders of compiled
// kernels.
#include <errno.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "compiler/tile/tile_selector.h"
#include "runtime/base/digest.h"
#include "runtime/base/file.h"
#include "runtime/base/knobs.h"
#include "runtime/base/shown.h"
#include "runtime/base/status_macros.h"
#include "runtime/cache/disk_cache.h"
#include "runtime/cache/why_miss.h"
#include "tools/cache_transfer.h"
#include "tools/columns.h"
#include "tools/command.h"
#include "tools/prime_manifest.h"

namespace kvforge {
namespace {

struct CacheFlags {
  std::string cache;  // "" = the environment's
  std::string spec;
  std::string gpu;
  int64_t byte_cap = 0;
  std::vector<std::string> sources;  // of import
  std::string target;                // of export
  bool json = false;
};

absl::StatusOr<DiskCacheOptions> OptionsOf(const std::string& folder) {
  if (!folder.empty()) {
    RETURN_IF_ERROR(CheckCacheFolder(folder));
    DiskCacheOptions options;
    options.roots = {{folder, false}};
    return options;
  }
  ASSIGN_OR_RETURN(const Knobs knobs, EnvironmentKnobs());
  return DiskCacheOptionsFromKnobs(knobs);
}

int ListCache(const CacheFlags& flags) {
  const absl::StatusOr<DiskCacheOptions> options = OptionsOf(flags.cache);
  if (!options.ok()) return Fail(options.status());
  nlohmann::json list = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows = {
      {"bytes", "arch", "tile", "registers", "shared", "spec"}};
  int64_t bytes = 0;
  int damaged = 0;
  for (const ListedEntry& listed : DiskCache(*options).List()) {
    bytes += listed.file_bytes;
    if (!listed.entry.ok()) {
      ++damaged;
      rows.push_back(
          {absl::StrCat(listed.file_bytes), "-", "-", "-", "-",
           absl::StrCat(listed.path, ": ", listed.entry.status().message())});
      list.push_back({{"path", listed.path},
                      {"error", std::string(listed.entry.status().message())}});
      continue;
    }
    const Entry& entry = *listed.entry;
    rows.push_back({absl::StrCat(listed.file_bytes), entry.key.arch,
                    entry.key.tile, absl::StrCat(entry.facts.registers),
                    absl::StrCat(entry.facts.dynamic_shared_bytes),
                    entry.key.spec});
    list.push_back({{"path", listed.path},
                    {"bytes", listed.file_bytes},
                    {"spec", entry.key.spec},
                    {"tile", entry.key.tile},
                    {"arch", entry.key.arch},
                    {"build_id", entry.key.build_id},
                    {"compiler", entry.facts.compiler},
                    {"last_used", absl::FormatTime(listed.last_used)}});
  }
  if (flags.json) {
    PrintJson(list);
  } else {
    std::printf("%s%d entries, %lld bytes, %d damaged\n", Columns(rows).c_str(),
                static_cast<int>(rows.size()) - 1,
                static_cast<long long>(bytes), damaged);
  }
  return kExitOk;
}

int TrimCache(const CacheFlags& flags) {
  const absl::StatusOr<DiskCacheOptions> options = OptionsOf(flags.cache);
  if (!options.ok()) return Fail(options.status());
  const absl::StatusOr<TrimResult> result =
      DiskCache(*options).Trim(flags.byte_cap);
  if (!result.ok()) return Fail(result.status());
  std::printf("removed %lld entries, %lld bytes; %lld bytes are left\n",
              static_cast<long long>(result->entries_removed),
              static_cast<long long>(result->bytes_removed),
              static_cast<long long>(result->bytes_left));
  return kExitOk;
}

int ShowTransfer(const absl::StatusOr<TransferReport>& report, bool json) {
  if (!report.ok()) {
    return Fail(report.status(), absl::IsNotFound(report.status())
                                     ? kExitUnreadable
                                     : kExitNoEngine);
  }
  if (json) {
    PrintJson(nlohmann::json{{"written", report->written},
                             {"present", report->present},
                             {"problems", report->problems},
                             {"notes", report->notes}});
  } else {
    for (const std::string& note : report->notes) {
      std::printf("note: %s\n", note.c_str());
    }
    for (const std::string& problem : report->problems) {
      std::printf("%s\n", problem.c_str());
    }
    std::printf("%lld written, %lld present, %d problems\n",
                static_cast<long long>(report->written),
                static_cast<long long>(report->present),
                static_cast<int>(report->problems.size()));
  }
  return report->problems.empty() ? kExitOk : kExitFailed;
}

int ImportCache(const CacheFlags& flags) {
  const absl::StatusOr<DiskCacheOptions> options = OptionsOf(flags.cache);
  if (!options.ok()) return Fail(options.status());
  if (options->roots.empty()) {
    return Fail(absl::FailedPreconditionError(
        "there is no folder to import into; name one with --cache DIR"));
  }
  return ShowTransfer(ImportEntries(flags.sources, options->roots.front().path),
                      flags.json);
}

// Every entry is whole, and those of the folder's manifests are there with the
// recorded payload.
int Verify(const CacheFlags& flags) {
  if (access(flags.cache.c_str(), F_OK) != 0) {
    return Fail(FileError(errno, "verify: cannot open", Shown(flags.cache)),
                kExitFailed);
  }
  if (const absl::Status folder = CheckCacheFolder(flags.cache); !folder.ok()) {
    return Fail(folder);
  }
  DiskCacheOptions options;
  options.roots = {{flags.cache, false}};
  const absl::StatusOr<std::vector<PrimedKernel>> primed =
      ReadPrimeManifests(flags.cache);
  if (!primed.ok()) return Fail(primed.status(), kExitUnreadable);
  std::vector<std::string> problems;
  std::map<std::string, std::string> digests;  // key digest to payload digest
  for (const ListedEntry& listed : DiskCache(options).List()) {
    if (!listed.entry.ok()) {
      problems.push_back(
          absl::StrCat(listed.path, ": ", listed.entry.status().message()));
      continue;
    }
    digests[KeyDigest(listed.entry->key)] = Sha256Hex(listed.entry->payload);
  }
  if (digests.empty() && primed->empty() && problems.empty()) {
    problems.push_back(
        absl::StrCat(flags.cache,
                     ": neither an entry nor a manifest; nothing was primed "
                     "into this folder"));
  }
  for (const PrimedKernel& kernel : *primed) {
    const auto entry = digests.find(kernel.key);
    if (entry == digests.end()) {
      problems.push_back(absl::StrCat(kernel.spec, " for ", kernel.gpu,
                                      ": in the manifest, not in the cache"));
    } else if (entry->second != kernel.payload_digest) {
      problems.push_back(absl::StrCat(kernel.spec, " for ", kernel.gpu,
                                      ": another payload than was primed"));
    }
  }
  if (flags.json) {
    PrintJson(nlohmann::json{{"entries", digests.size()},
                             {"primed", primed->size()},
                             {"problems", problems}});
  } else {
    for (const std::string& problem : problems) {
      std::printf("%s\n", problem.c_str());
    }
    std::printf("%d entries whole, %d of the manifest, %d problems\n",
                static_cast<int>(digests.size()),
                static_cast<int>(primed->size()),
                static_cast<int>(problems.size()));
  }
  return problems.empty() ? kExitOk : kExitFailed;
}

// Says whether a SPEC's key is in the cache and, if not, how the nearest
// differs.
absl::StatusOr<int> ShowWhyMiss(const CacheFlags& flags) {
  ASSIGN_OR_RETURN(const KernelSpec spec, ParseSpec(flags.spec));
  ASSIGN_OR_RETURN(const PrimeTarget target, ParsePrimeTarget(flags.gpu));
  ASSIGN_OR_RETURN(const TileCandidate choice, SelectTile(spec, *target.gpu));
  EngineFlags engine_flags;
  engine_flags.cache = flags.cache;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                   EngineFromFlags(engine_flags));
  const KeyFields wanted =
      engine->Key(spec, choice.tile, *target.gpu, target.target);
  std::printf("wanted   %s\n", KeyText(wanted).c_str());
  const MissReport report = WhyMiss(wanted, engine->disk().List());
  if (report.path.empty()) {
    std::printf("the cache has no entry\n");
    return kExitFailed;
  }
  std::printf("%s  %s\n", report.hit ? "hit    " : "nearest",
              report.path.c_str());
  for (const std::string& difference : report.differences) {
    std::printf("differs  %s\n", difference.c_str());
  }
  return report.hit ? kExitOk : kExitFailed;
}

}  // namespace

void AddCache(CLI::App& app, Command& command) {
  auto flags = std::make_shared<CacheFlags>();
  CLI::App* cache = app.add_subcommand(
      "cache", "Lists, trims, copies or joins folders of compiled kernels");
  cache->require_subcommand(1);
  CLI::App* list = cache->add_subcommand("list", "Every entry");
  CLI::App* trim = cache->add_subcommand(
      "trim", "Removes the least recently used entries down to a size");
  CLI::App* import = cache->add_subcommand(
      "import",
      "Adds the good entries and the manifests of other folders; what is there "
      "stays. An archive is unpacked first, with tar");
  CLI::App* export_copy = cache->add_subcommand(
      "export",
      "Copies the good entries and the manifests of a folder to a new one, to "
      "be packed with tar or copied");
  for (CLI::App* one : {list, trim, import}) {
    one->add_option("--cache", flags->cache,
                    "Folder (default: KVFORGE_CACHE_DIR)");
  }
  for (CLI::App* one : {list, import, export_copy}) {
    one->add_flag("--json", flags->json, "Print JSON");
  }
  import->add_option("from", flags->sources, "Folders, or single *.kvk entries")
      ->required();
  export_copy->add_option("folder", flags->cache, "Folder to copy")->required();
  export_copy->add_option("to", flags->target, "A new or empty folder")
      ->required();
  trim->add_option("--bytes", flags->byte_cap, "Bytes to keep at most")
      ->required()
      ->check(CLI::NonNegativeNumber);
  list->callback(
      [&command, flags] { command = [flags] { return ListCache(*flags); }; });
  trim->callback(
      [&command, flags] { command = [flags] { return TrimCache(*flags); }; });
  import->callback(
      [&command, flags] { command = [flags] { return ImportCache(*flags);
};
}  // namespace kvforge
);
export_copy->callback([&command, flags] {
  command = [flags] {
    return ShowTransfer(ExportEntries(flags->cache, flags->target),
                        flags->json);
  };
});
}

void AddVerify(CLI::App& app, Command& command) {
  auto flags = std::make_shared<CacheFlags>();
  CLI::App* verify = app.add_subcommand(
      "verify", "Checks every entry and the manifest of a primed folder");
  verify->add_option("folder", flags->cache, "Folder")->required();
  verify->add_flag("--json", flags->json, "Print JSON");
  verify->callback(
      [&command, flags] { command = [flags] { return Verify(*flags); }; });
}

void AddWhyMiss(CLI::App& app, Command& command) {
  auto flags = std::make_shared<CacheFlags>();
  CLI::App* why = app.add_subcommand(
      "why-miss", "Says in which field a SPEC's key differs from the nearest");
  why->add_option("spec", flags->spec, "SPEC")->required();
  why->add_option("--gpu", flags->gpu, "GPU, or host-GPU")->required();
  why->add_option("--cache", flags->cache,
                  "Folder (default: KVFORGE_CACHE_DIR)");
  why->callback([&command, flags] {
    command = [flags] {
      const absl::StatusOr<int> code = ShowWhyMiss(*flags);
      return code.ok() ? *code : Fail(code.status());
    };
  });
}

}  // namespace kvforge
