// manifest.json of a primed folder: what was compiled, with digests, so that
// `kvforge verify` can check a copy of the folder on any machine.
#ifndef KVFORGE_TOOLS_PRIME_MANIFEST_H_
#define KVFORGE_TOOLS_PRIME_MANIFEST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
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
// The same for every name of one target: "sm_90", not "sm_90a".
std::string TargetName(const PrimeTarget& target);

struct PrimedKernel {
  std::string spec;
  std::string gpu;             // TargetName
  std::string key;             // digest
  std::string payload_digest;  // SHA-256
  std::string tile;
  int registers = 0;  // a thread
  int shared_bytes = 0;
  int spill_bytes = 0;
};

// `gpu`: the name of the target that the entry is for.
PrimedKernel Describe(absl::string_view gpu, const Entry& entry);

// Every manifest*.json of the folder; empty if there is none. kInvalidArgument
// for one that is not of the form.
absl::StatusOr<std::vector<PrimedKernel>> ReadPrimeManifests(
    const std::string& folder);

// Adds `kernels` to the manifest of that file name in the folder, replacing
// those of the same spec, GPU and tile; of several processes at once, none
// loses what another adds. A manifest that is damaged is moved aside, and
// *warning says so.
absl::Status UpdatePrimeManifest(const std::string& folder,
                                 const std::string& file_name,
                                 const std::vector<PrimedKernel>& kernels,
                                 std::string* warning);

// When a folder's kernels were compiled, which neither entries nor manifest
// say: they are the same bytes wherever and whenever they are made.
struct PrimeRun {
  absl::Time start;
  double seconds = 0;
  std::string shard;  // "" = the whole
  int compiled = 0;
  int found = 0;
  size_t failed = 0;
};
// Adds a line to the folder's history.jsonl. For people: a failure is ignored.
void AppendPrimeHistory(const std::string& folder, const PrimeRun& run);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_PRIME_MANIFEST_H_
