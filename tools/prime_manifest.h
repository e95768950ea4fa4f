// manifest.json of a primed folder: what was compiled, with digests, so that
// `kvforge verify` can check a copy of the folder on any machine.
#ifndef KVFORGE_TOOLS_PRIME_MANIFEST_H_
#define KVFORGE_TOOLS_PRIME_MANIFEST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/target/target.h"
#include "runtime/cache/entry.h"

namespace kvforge {

// What `--gpus` names: "sm_90" compiles for the GPU, "host-sm_90" the same text
// for the CPU.
struct PrimeTarget {
  std::string name;  // as given
  const GpuTarget* gpu = nullptr;
  std::string target;  // "cuda" or "host"
};
absl::StatusOr<PrimeTarget> ParsePrimeTarget(absl::string_view name);

struct PrimedKernel {
  std::string spec;
  std::string gpu;             // PrimeTarget's name
  std::string key;             // digest
  std::string payload_digest;  // SHA-256
  std::string tile;
  int registers = 0;  // a thread
  int shared_bytes = 0;
  int spill_bytes = 0;
};

PrimedKernel Describe(const PrimeTarget& target, const Entry& entry);

// Every manifest*.json of the folder; empty if there is none. kInvalidArgument
// for one that is not of the form.
absl::StatusOr<std::vector<PrimedKernel>> ReadPrimeManifests(
    const std::string& folder);

// Adds `kernels` to the manifest of that file name in the folder, replacing
// those of the same spec, GPU and tile.
absl::Status UpdatePrimeManifest(const std::string& folder,
                                 const std::string& file_name,
                                 const std::vector<PrimedKernel>& kernels);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_PRIME_MANIFEST_H_
