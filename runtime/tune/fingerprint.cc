#include "runtime/tune/fingerprint.h"

#include "absl/strings/str_cat.h"

namespace kvforge {
namespace {

constexpr int kMiB = 1 << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

}  // namespace

std::string DeviceFingerprint(absl::string_view name, int compute_capability,
                              const DeviceLimits& limits) {
  return absl::StrCat(
      name, " sm_", compute_capability, " ", limits.sm_count, " SMs ",
      limits.shared_bytes_opt_in, "+", limits.shared_bytes_reserved, "/",
      limits.shared_bytes_per_sm, " shared ", limits.registers_per_sm,
      " registers ", limits.threads_per_sm, " threads ", limits.l2_bytes / kMiB,
      " MiB L2 ", (limits.memory_bytes + kGiB / 2) / kGiB, " GiB");
}

}  // namespace kvforge
