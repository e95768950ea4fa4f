#include "compiler/target/target.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"

namespace kvforge {
namespace {

TEST(Target, BothSpellingsFindTheRow) {
  for (const char* name : {"sm_90", "sm_90a"}) {
    const absl::StatusOr<const GpuTarget*> target = FindTarget(name);
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_EQ((*target)->nvrtc_arch, "sm_90a");
  }
}

struct OptIn {
  const char* name;
  int kib;  // opt-in shared memory of a block
};

TEST(Target, TenGpusAreServedWithTheirLimits) {
  const OptIn kExpected[] = {{"sm_80", 163},  {"sm_86", 99},   {"sm_87", 163},
                             {"sm_89", 99},   {"sm_90", 227},  {"sm_100", 227},
                             {"sm_103", 227}, {"sm_110", 227}, {"sm_120", 99},
                             {"sm_121", 99}};
  int served = 0;
  for (const GpuTarget& target : kTargets) served += target.served ? 1 : 0;
  EXPECT_EQ(served, 10);
  for (const OptIn& expected : kExpected) {
    const absl::StatusOr<const GpuTarget*> target = FindTarget(expected.name);
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_EQ((*target)->shared_bytes_opt_in, expected.kib * 1024);
    EXPECT_LE((*target)->shared_bytes_opt_in + (*target)->shared_bytes_reserved,
              (*target)->shared_bytes_per_sm);
  }
}

TEST(Target, UnservedAndUnknownGpusNameTheServed) {
  const absl::Status unserved = FindTarget("sm_75").status();
  EXPECT_EQ(unserved.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(std::string(unserved.message()),
            "GPU sm_75 is named but not served in this version; served GPUs: "
            "sm_80, sm_86, sm_87, sm_89, sm_90, sm_100, sm_103, sm_110, "
            "sm_120, sm_121; use one of these");
  for (const char* name : {"sm_42", "", "90", "SM_90", "sm_90a "}) {
    EXPECT_EQ(FindTarget(name).status().code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
}

TEST(Target, LiveDevicesFindTheirRowOrTheSmallest) {
  EXPECT_EQ(TargetForComputeCapability(90).name, "sm_90");
  EXPECT_EQ(TargetForComputeCapability(121).name, "sm_121");
  const GpuTarget& unknown = TargetForComputeCapability(999);
  for (const GpuTarget& target : kTargets) {
    EXPECT_LE(unknown.shared_bytes_opt_in, target.shared_bytes_opt_in);
  }
  EXPECT_FALSE(unknown.has_e4m3_convert);
  EXPECT_FALSE(unknown.has_e2m1_convert);
}

}  // namespace
}  // namespace kvforge
