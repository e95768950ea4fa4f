#include "compiler/target/target.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/shown.h"

namespace kvforge {
namespace {

std::string ServedNames() {
  std::vector<absl::string_view> names;
  for (const GpuTarget& target : kTargets) {
    if (target.served) names.push_back(target.name);
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

absl::StatusOr<const GpuTarget*> FindTarget(absl::string_view name) {
  for (const GpuTarget& target : kTargets) {
    if (target.name != name && target.nvrtc_arch != name) continue;
    if (!target.served) {
      return absl::UnimplementedError(absl::StrCat(
          "GPU ", target.name, " is named but not served in this version",
          "; served GPUs: ", ServedNames(), "; use one of these"));
    }
    return &target;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("GPU '", Shown(name), "' is not in the table; served GPUs: ",
                   ServedNames(), "; use one of these"));
}

const GpuTarget& TargetForComputeCapability(int compute_capability) {
  const GpuTarget* smallest = &kTargets[0];
  for (const GpuTarget& target : kTargets) {
    if (target.compute_capability == compute_capability) return target;
    if (target.shared_bytes_opt_in < smallest->shared_bytes_opt_in) {
      smallest = &target;
    }
  }
  return *smallest;
}

}  // namespace kvforge
