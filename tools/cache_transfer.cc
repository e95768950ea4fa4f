#include "tools/cache_transfer.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status_macros.h"
#include "runtime/cache/disk_cache.h"
#include "tools/prime_manifest.h"

namespace kvforge {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxEntryBytes = int64_t{256} << 20;

// Paths of a source's entries, sorted.
absl::StatusOr<std::vector<std::string>> EntryPaths(const std::string& source) {
  std::error_code error;
  const fs::file_status status = fs::status(source, error);
  if (!fs::exists(status)) {
    return absl::NotFoundError(
        absl::StrCat("cannot open ", source,
                     ": no such folder or file; expected a folder of compiled "
                     "kernels or a *",
                     kEntrySuffix, " file; unpack an archive first"));
  }
  std::vector<std::string> paths;
  if (!fs::is_directory(status)) {
    if (!absl::EndsWith(source, kEntrySuffix)) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": expected a folder or a *", kEntrySuffix,
                       " file; unpack an archive first"));
    }
    return std::vector<std::string>{source};
  }
  for (fs::recursive_directory_iterator it(source, error), end;
       !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    if (absl::EndsWith(path, kEntrySuffix)) paths.push_back(path);
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("cannot list ", source, ": ", error.message()));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::StatusOr<Entry> ReadWholeEntry(const std::string& path, bool in_folder) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxEntryBytes));
  ASSIGN_OR_RETURN(Entry entry, ParseEntry(bytes));
  if (in_folder && !absl::EndsWith(path, DiskCache::EntryPath("", entry.key))) {
    return absl::DataLossError(absl::StrCat(
        "it holds another kernel than its name says: ", KeyText(entry.key)));
  }
  return entry;
}

class Import {
 public:
  explicit Import(const std::string& folder)
      : folder_(folder), cache_(Options(folder)) {}

  absl::Status AddEntries(const std::string& source) {
    ASSIGN_OR_RETURN(const std::vector<std::string> paths, EntryPaths(source));
    for (const std::string& path : paths) {
      const absl::StatusOr<Entry> entry = ReadWholeEntry(path, path != source);
      if (!entry.ok()) {
        report_.problems.push_back(absl::StrCat(
            path, ": ", entry.status().message(), "; it is not taken"));
        continue;
      }
      RETURN_IF_ERROR(AddEntry(path, *entry));
    }
    return absl::OkStatus();
  }

  // The rows of a source's manifests whose kernels are in the folder now.
  void AddManifests(const std::string& source) {
    std::error_code error;
    if (!fs::is_directory(source, error)) return;
    const absl::StatusOr<std::vector<PrimedKernel>> primed =
        ReadPrimeManifests(source);
    if (!primed.ok()) {
      report_.problems.emplace_back(primed.status().message());
      return;
    }
    for (const PrimedKernel& kernel : *primed) {
      const auto found = kernels_.find(kernel.key);
      if (found == kernels_.end()) {
        report_.problems.push_back(
            absl::StrCat(source, ": ", kernel.spec, " for ", kernel.gpu,
                         ": in the manifest, not among the entries taken"));
        continue;
      }
      rows_.push_back(found->second);
      rows_.back().gpu = kernel.gpu;
    }
  }

  absl::StatusOr<TransferReport> Finish() {
    if (!rows_.empty()) {
      std::string warning;
      RETURN_IF_ERROR(
          UpdatePrimeManifest(folder_, "manifest.json", rows_, &warning));
      if (!warning.empty()) report_.notes.push_back(std::move(warning));
    }
    return std::move(report_);
  }

 private:
  static DiskCacheOptions Options(const std::string& folder) {
    DiskCacheOptions options;
    options.roots = {{folder, false}};
    options.byte_cap = 0;  // what is imported stays, however large
    return options;
  }

  absl::Status AddEntry(const std::string& path, const Entry& entry) {
    const std::optional<Entry> there = cache_.Lookup(entry.key);
    if (there) {
      ++report_.present;
      if (there->payload != entry.payload) {
        report_.notes.push_back(
            absl::StrCat(path, ": of another payload (", entry.facts.compiler,
                         ") than the entry that the folder has (",
                         there->facts.compiler, "), which stays"));
      }
    } else {
      RETURN_IF_ERROR(cache_.Publish(entry));
      ++report_.written;
    }
    kernels_[KeyDigest(entry.key)] = Describe("", there ? *there : entry);
    return absl::OkStatus();
  }

  const std::string folder_;
  DiskCache cache_;
  TransferReport report_;
  std::map<std::string, PrimedKernel> kernels_;  // in the folder, by key digest
  std::vector<PrimedKernel> rows_;
};

}  // namespace

absl::StatusOr<TransferReport> ImportEntries(
    const std::vector<std::string>& sources, const std::string& folder) {
  RETURN_IF_ERROR(MakeFolders(folder));
  Import import(folder);
  for (const std::string& source : sources) {
    RETURN_IF_ERROR(import.AddEntries(source));
  }
  for (const std::string& source : sources) import.AddManifests(source);
  return import.Finish();
}

absl::StatusOr<TransferReport> ExportEntries(const std::string& folder,
                                             const std::string& target) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return absl::NotFoundError(absl::StrCat(
        folder, ": expected a folder of compiled kernels; name one"));
  }
  if (fs::exists(target, error) && !fs::is_empty(target, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(target, " is not empty; expected a new or empty folder; ",
                     "to add to a folder use `kvforge cache import`"));
  }
  return ImportEntries({folder}, target);
}

}  // namespace kvforge
