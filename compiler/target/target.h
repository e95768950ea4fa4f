// The table of GPUs: limits and instructions per compute capability. The only
// list of them. On a live device the driver's attributes replace the limits.
#ifndef KVFORGE_COMPILER_TARGET_TARGET_H_
#define KVFORGE_COMPILER_TARGET_TARGET_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvforge {

struct GpuTarget {
  absl::string_view name;        // SPEC and command-line spelling: "sm_90"
  absl::string_view nvrtc_arch;  // exact compile target: "sm_90a"
  int compute_capability;        // major * 10 + minor
  int shared_bytes_opt_in;       // dynamic shared memory one block may ask for
  int shared_bytes_per_sm;
  int shared_bytes_reserved;  // taken by the driver from every block
  int warps_per_sm;
  int registers_per_sm;         // 32-bit registers
  bool has_e4m3_convert;        // e4m3/e5m2 <-> f16/f32 in hardware
  bool has_e2m1_convert;        // e2m1 and ue8m0 likewise
  bool has_tensor_copies;       // boxes of a tensor map, asynchronously
  bool has_warpgroup_products;  // wgmma
  bool served;                  // false: known and sized, refused by name
};

inline constexpr int kKiB = 1024;
inline constexpr GpuTarget kTargets[] = {
    {"sm_75", "sm_75", 75, 64 * kKiB, 64 * kKiB, 0, 32, 65536, false, false,
     false, false, false},
    {"sm_80", "sm_80", 80, 163 * kKiB, 164 * kKiB, kKiB, 64, 65536, false,
     false, false, false, true},
    {"sm_86", "sm_86", 86, 99 * kKiB, 100 * kKiB, kKiB, 48, 65536, false, false,
     false, false, true},
    {"sm_87", "sm_87", 87, 163 * kKiB, 164 * kKiB, kKiB, 48, 65536, false,
     false, false, false, true},
    {"sm_89", "sm_89", 89, 99 * kKiB, 100 * kKiB, kKiB, 48, 65536, true, false,
     false, false, true},
    {"sm_90", "sm_90a", 90, 227 * kKiB, 228 * kKiB, kKiB, 64, 65536, true,
     false, true, true, true},
    {"sm_100", "sm_100a", 100, 227 * kKiB, 228 * kKiB, kKiB, 64, 65536, true,
     true, true, false, true},
    {"sm_103", "sm_103a", 103, 227 * kKiB, 228 * kKiB, kKiB, 64, 65536, true,
     true, true, false, true},
    {"sm_110", "sm_110a", 110, 227 * kKiB, 228 * kKiB, kKiB, 48, 65536, true,
     true, true, false, true},
    {"sm_120", "sm_120a", 120, 99 * kKiB, 100 * kKiB, kKiB, 48, 65536, true,
     true, true, false, true},
    {"sm_121", "sm_121a", 121, 99 * kKiB, 100 * kKiB, kKiB, 48, 65536, true,
     true, true, false, true},
};

// Finds "sm_90" or "sm_90a" (the exact target). kInvalidArgument for a GPU
// that is not in the table, kUnimplemented for one that is not served; both
// name the ones that are.
absl::StatusOr<const GpuTarget*> FindTarget(absl::string_view name);

// The row of a live device's compute capability, or of the row with the
// smallest limits and no optional instruction where it is unknown.
const GpuTarget& TargetForComputeCapability(int compute_capability);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_TARGET_TARGET_H_
