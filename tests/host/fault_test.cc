// What the twin checks ends the launch with a sentence that names it, and the
// module runs again afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "tests/host/host_kernel.h"

namespace kvforge {

struct FaultCase {
  const char* name;
  const char* body;
  const char* sentence;  // regular expression; matches the whole message
};

void PrintTo(const FaultCase& fault, std::ostream* out) { *out << fault.name; }

namespace {

class Fault : public ::testing::TestWithParam<FaultCase> {};

TEST_P(Fault, EndsTheLaunch) {
  const absl::StatusOr<std::unique_ptr<HostModule>> module =
      LoadTestKernel(GetParam().body);
  ASSERT_TRUE(module.ok()) << module.status();
  for (const uint64_t seed : {1u, 2u, 3u}) {
    TestLaunch launch;
    launch.seed = seed;
    const absl::Status status = RunTestKernel(**module, launch, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                ::testing::MatchesRegex(GetParam().sentence));
    // n = 0 avoids the fault in every case.
    const absl::Status clean = RunTestKernel(**module, launch, 0).status();
    EXPECT_TRUE(clean.ok()) << clean;
  }
}

constexpr FaultCase kFaults[] = {
    {"LoadSharedPastTheEnd",
     "if (args.n && t == 5) args.out[0] = LoadShared<u32>(SharedBase() + 256);",
     "host launch: thread 5 of block 0: LoadShared of 4 bytes at shared "
     "address 0x500 is out of bounds; the arena has 256 bytes from 0x400; "
     "check the address and kvforge_shared_bytes"},
    {"StoreSharedBelowTheStart",
     "if (args.n && t == 63) StoreShared<u16>(SharedBase() - 2, 7);",
     "host launch: thread 63 of block 0: StoreShared of 2 bytes at shared "
     "address 0x3fe is out of bounds; the arena has 256 bytes from 0x400; "
     "check the address and kvforge_shared_bytes"},
    {"StoreSharedMisaligned",
     "if (args.n && t == 1) StoreShared(SharedBase() + 8, U32x4{});",
     "host launch: thread 1 of block 0: StoreShared of 16 bytes at shared "
     "address 0x408 is misaligned; an access is aligned to its size; check "
     "the address"},
    {"LoadGlobalMisaligned",
     "if (args.n && t == 9) args.out[0] = LoadGlobal<U32x4>(args.in + 1).v[0];",
     "host launch: thread 9 of block 0: LoadGlobal of 16 bytes at global "
     "address 0x[0-9a-f]+4 is misaligned; an access is aligned to its size; "
     "check the base and the strides"},
    {"StoreGlobalToNull", "if (args.n && t == 9) StoreGlobal<u32>(nullptr, 1);",
     "host launch: thread 9 of block 0: StoreGlobal of 4 bytes at global "
     "address 0x0, which is null; an access is aligned to its size; check the "
     "base and the strides"},
    {"LdMatrixMisaligned",
     "StoreShared<u32>(SharedBase() + 4 * t, t);\n"
     "BlockSync();\n"
     "u32 r[4];\n"
     "LdMatrix4(r, SharedBase() + (args.n && t == 33 ? 4 : 0));",
     "host launch: thread 33 of block 0: LdMatrix4 of 16 bytes at shared "
     "address 0x404 is misaligned; an access is aligned to its size; check "
     "the address"},
    {"LdMatrixPastTheEnd",
     "StoreShared<u32>(SharedBase() + 4 * t, t);\n"
     "BlockSync();\n"
     "u32 r[4];\n"
     "LdMatrix4Trans(r, SharedBase() + (args.n && t == 2 ? 256 : 0));",
     "host launch: thread 2 of block 0: LdMatrix4Trans of 16 bytes at shared "
     "address 0x500 is out of bounds; the arena has 256 bytes from 0x400; "
     "check the address and kvforge_shared_bytes"},
    {"CpAsyncPastTheEnd",
     "if (args.n && t == 3) CpAsync<16>(SharedBase() + 256, args.in, true);",
     "host launch: thread 3 of block 0: CpAsync of 16 bytes at shared address "
     "0x500 is out of bounds; the arena has 256 bytes from 0x400; check the "
     "address and kvforge_shared_bytes"},
    {"CpAsyncFromMisaligned",
     "if (args.n && t == 3) CpAsync<8>(SharedBase(), args.in + 1, true);",
     "host launch: thread 3 of block 0: CpAsync of 8 bytes at global address "
     "0x[0-9a-f]+4 is misaligned; an access is aligned to its size; check the "
     "base and the strides"},
    {"CpAsyncFromMisalignedNotValid",
     "if (args.n && t == 3) CpAsync<8>(SharedBase(), args.in + 1, false);",
     "host launch: thread 3 of block 0: CpAsync of 8 bytes at global address "
     "0x[0-9a-f]+4 is misaligned; an access is aligned to its size; check the "
     "base and the strides"},
    {"CopiesWithoutAWait",
     "if (args.n && t == 40) {\n"
     "  CpAsync<4>(SharedBase(), args.in, true);\n"
     "  CpAsync<4>(SharedBase() + 4, args.in, true);\n"
     "  CpAsyncCommit();\n"
     "  CpAsyncWait<1>();\n"
     "}",
     "host launch: thread 40 of block 0: exits with 2 asynchronous copies that "
     "no wait covers; every copy must land before the kernel ends; commit and "
     "wait for them"},
    {"CopyWithoutACommit",
     "if (args.n && t == 40) {\n"
     "  CpAsync<4>(SharedBase(), args.in, true);\n"
     "  CpAsyncWait<0>();\n"
     "}",
     "host launch: thread 40 of block 0: exits with 1 asynchronous copies that "
     "no wait covers; every copy must land before the kernel ends; commit and "
     "wait for them"},
    {"DifferentCollectives",
     "if (args.n && t == 37) { WarpSync(); } else { ShuffleXor(1u, 1); }",
     "host launch: thread [0-9]+ of block 0: calls (WarpSync|ShuffleXor) while "
     "thread [0-9]+ of its warp is in (ShuffleXor|WarpSync); all 32 lanes take "
     "part in the same warp operation; let no lane branch around it"},
    {"BarrierInABranch",
     "if (args.n && t % 32 < 8) { BlockSync(); }\n"
     "if (args.n && t % 32 >= 8) { WarpSync(); }",
     "host launch: thread [0-9]+ of block 0: no thread of the block can run: "
     "threads 0 to 7 wait in BlockSync, threads 8 to 31 wait in WarpSync, "
     "threads 32 to 39 wait in BlockSync, threads 40 to 63 wait in WarpSync; a "
     "warp operation ends when all 32 lanes have come, BlockSync and PartSync "
     "when all their threads have, a wait when its phase's arrivals have; let "
     "them come"},
    {"WaitForAnArrivalThatNeverComes",
     "if (t == 0) MbarrierInit(SharedBase(), 2);\n"
     "BlockSync();\n"
     "if (t < 2 - args.n) MbarrierArrive(SharedBase());\n"
     "if (t == 0) MbarrierWait(SharedBase(), 0);",
     "host launch: thread [0-9]+ of block 0: no thread of the block can run: "
     "thread 0 waits in MbarrierWait; .*"},
    {"ArrivalWithoutAnMbarrier",
     "if (args.n) MbarrierArrive(SharedBase() + 8);",
     "host launch: thread [0-9]+ of block 0: MbarrierArrive at shared address "
     "0x[0-9a-f]+, where no mbarrier was made; MbarrierInit comes first; check "
     "the address"},
    {"PartSyncOfOthers", "if (args.n || t < 32) PartSync<32>();",
     "host launch: thread (3[2-9]|[4-6][0-9]) of block 0: calls PartSync of "
     "the first 32 threads; these are whole warps of the block, the calling "
     "thread among them; let only them come to it"},
};

INSTANTIATE_TEST_SUITE_P(Kinds, Fault, ::testing::ValuesIn(kFaults),
                         [](const ::testing::TestParamInfo<FaultCase>& info) {
                           return std::string(info.param.name);
                         });

struct LeaveCase {
  const char* name;
  const char* body;
  const char* after;  // the mates wait when the thread leaves
  const char* before;
};

void PrintTo(const LeaveCase& leave, std::ostream* out) { *out << leave.name; }

class Leave : public ::testing::TestWithParam<LeaveCase> {};

TEST_P(Leave, IsAnErrorBeforeAndAfterTheMatesCome) {
  const absl::StatusOr<std::unique_ptr<HostModule>> module =
      LoadTestKernel(GetParam().body);
  ASSERT_TRUE(module.ok()) << module.status();
  int after = 0;
  int before = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    TestLaunch launch;
    launch.seed = seed;
    const absl::Status status = RunTestKernel(**module, launch, 1).status();
    const std::string message(status.message());
    const bool is_after =
        ::testing::Matches(::testing::MatchesRegex(GetParam().after))(message);
    const bool is_before =
        ::testing::Matches(::testing::MatchesRegex(GetParam().before))(message);
    ASSERT_TRUE(is_after || is_before) << "seed " << seed << ": " << status;
    after += is_after;
    before += is_before;
  }
  EXPECT_GT(after, 0);
  EXPECT_GT(before, 0);
}

constexpr LeaveCase kLeaves[] = {
    {"Warp", "if (t == 37) return;\nWarpAny(false);",
     "host launch: thread 37 of block 0: exits while thread [0-9]+ of its warp "
     "is in WarpAny; all 32 lanes take part in a warp operation; let no lane "
     "leave before it",
     "host launch: thread [0-9]+ of block 0: calls WarpAny after thread 37 of "
     "its warp has exited; all 32 lanes take part in a warp operation; let no "
     "lane leave before it"},
    {"Block", "if (t == 37) return;\nBlockSync();",
     "host launch: thread 37 of block 0: exits while threads? .* waits? in "
     "BlockSync.*; all threads of a block take part in BlockSync; let no "
     "thread leave before it",
     "host launch: thread [0-9]+ of block 0: calls BlockSync after 1 threads "
     "of "
     "its block have exited; all threads of a block take part in it; let no "
     "thread leave before it"},
};

INSTANTIATE_TEST_SUITE_P(Kinds, Leave, ::testing::ValuesIn(kLeaves),
                         [](const ::testing::TestParamInfo<LeaveCase>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace kvforge
