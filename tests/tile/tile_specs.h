// SPECs and GPUs that the tests of compiler/tile share.
#ifndef KVFORGE_TESTS_TILE_TILE_SPECS_H_
#define KVFORGE_TESTS_TILE_TILE_SPECS_H_

#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/string_view.h"
#include "compiler/spec/kernel_spec.h"
#include "compiler/target/target.h"

namespace kvforge {

inline constexpr int kHeadDims[] = {64,  80,  96,  112, 128, 144, 160,
                                    176, 192, 208, 224, 240, 256, 512};

inline const GpuTarget& Gpu(const char* name) { return **FindTarget(name); }

// The ten served GPUs and one with 64 KiB.
inline std::vector<GpuTarget> Targets() {
  std::vector<GpuTarget> targets;
  for (const GpuTarget& target : kTargets) {
    if (target.served) targets.push_back(target);
  }
  GpuTarget small = Gpu("sm_86");
  small.name = "64 KiB";
  small.shared_bytes_opt_in = 64 * kKiB;
  small.shared_bytes_per_sm = 65 * kKiB;
  targets.push_back(small);
  return targets;
}

inline KernelSpec Spec(absl::string_view text) {
  const absl::StatusOr<KernelSpec> spec = ParseSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : KernelSpec();
}

inline KernelSpec Extend(const KvFormat& k, const KvFormat& v, int head_dim,
                         int v_head_dim) {
  KernelSpec spec;
  spec.kernel = KernelKind::kExtend;
  spec.k_format = &k;
  spec.v_format = &v;
  spec.head_dim = head_dim;
  spec.v_head_dim = v_head_dim;
  spec.page_size = 16;
  return spec;
}

}  // namespace kvforge

#endif  // KVFORGE_TESTS_TILE_TILE_SPECS_H_
