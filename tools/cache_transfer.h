// Puts folders of compiled kernels together: the parts that several machines
// primed, a copy from elsewhere, another user's.
//
// Folders, not archives: an entry already is one file that proves itself by its
// digests, every system packs a folder (tar, cp, rsync, an image's layer), and
// the command stays free of libraries that a GPU's machine may lack.
#ifndef KVFORGE_TOOLS_CACHE_TRANSFER_H_
#define KVFORGE_TOOLS_CACHE_TRANSFER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kvforge {

struct TransferReport {
  int64_t written = 0;
  int64_t present = 0;  // a good entry of the same key was there, and stays
  // Entries that were not taken and kernels of a manifest that are missing,
  // each with its file.
  std::vector<std::string> problems;
  std::vector<std::string> notes;
};

// Writes the entries of `sources`, folders or single *.kvk files, to `folder`,
// and their manifests' kernels to its manifest.json. An entry is written only
// if its digests and its place are right, whole or not at all, and never in the
// place of a good one; again is no different from once. Whoever owns the
// sources: naming them is trusting them.
// kNotFound for a source that is not there; an error of writing ends it, with
// what was written before it in place.
absl::StatusOr<TransferReport> ImportEntries(
    const std::vector<std::string>& sources, const std::string& folder);

// The same into a folder that is new or empty: a copy without locks, leftovers
// and damaged entries.
absl::StatusOr<TransferReport> ExportEntries(const std::string& folder,
                                             const std::string& target);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_CACHE_TRANSFER_H_
