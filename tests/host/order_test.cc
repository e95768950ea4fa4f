// Accesses of shared memory that nothing orders end the launch in every fiber
// order, whether or not the order at hand shows a wrong value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "tests/host/host_kernel.h"

namespace kvforge {

struct OrderCase {
  const char* name;
  const char* body;  // args.n leaves the barrier or wait out
  const char* sentence;
};

void PrintTo(const OrderCase& order, std::ostream* out) { *out << order.name; }

namespace {

class Order : public ::testing::TestWithParam<OrderCase> {};

TEST_P(Order, IsFoundInEverySeed) {
  const absl::StatusOr<std::unique_ptr<HostModule>> module =
      LoadTestKernel(GetParam().body);
  ASSERT_TRUE(module.ok()) << module.status();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    TestLaunch launch;
    launch.seed = seed;
    launch.blocks = 2;
    const absl::Status clean = RunTestKernel(**module, launch, 0).status();
    EXPECT_TRUE(clean.ok()) << clean;
    const absl::Status status = RunTestKernel(**module, launch, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << "seed " << seed;
    EXPECT_THAT(std::string(status.message()),
                ::testing::MatchesRegex(GetParam().sentence));
  }
}

#define PREFIX "host launch: thread [0-9]+ of block [01]: "
#define AT " of 4 bytes at shared address 0x[0-9a-f]+ "
#define BARRIER                                                     \
  ", and no barrier lies between; a BlockSync, or within a warp a " \
  "WarpSync, orders them; put one there"

constexpr OrderCase kOrders[] = {
    {"ReadOfWhatNothingWrote",
     "if (!args.n) StoreShared<u32>(SharedBase() + 4 * t, t);\n"
     "args.out[t] = LoadShared<u32>(SharedBase() + 4 * t);",
     PREFIX "LoadShared" AT
            "reads bytes that nothing wrote in this block; shared memory holds "
            "no values at start; write them first"},
    {"ReadAcrossWarps",
     "StoreShared<u32>(SharedBase() + 4 * t, t);\n"
     "BlockSync();\n"
     "StoreShared<u32>(SharedBase() + 4 * t, t + 1);\n"
     "if (!args.n) BlockSync();\n"
     "args.out[t] = LoadShared<u32>(SharedBase() + 4 * (63 - t));",
     PREFIX "(LoadShared" AT "reads what thread [0-9]+ wrote|StoreShared" AT
            "writes what thread [0-9]+ read)" BARRIER},
    {"ReadWithinAWarp",
     "StoreShared<u32>(SharedBase() + 4 * t, t);\n"
     "BlockSync();\n"
     "StoreShared<u32>(SharedBase() + 4 * t, t + 1);\n"
     "if (!args.n) WarpSync();\n"
     "args.out[t] = LoadShared<u32>(SharedBase() + 4 * (t ^ 1));",
     PREFIX "(LoadShared" AT "reads what thread [0-9]+ wrote|StoreShared" AT
            "writes what thread [0-9]+ read)" BARRIER},
    {"AShuffleOrdersNothing",
     "StoreShared<u32>(SharedBase() + 4 * t, t);\n"
     "ShuffleXor(1u, 1);\n"
     "if (!args.n) WarpSync();\n"
     "args.out[t] = LoadShared<u32>(SharedBase() + 4 * (t ^ 1));",
     PREFIX "LoadShared" AT "reads what thread [0-9]+ wrote" BARRIER},
    {"AWarpSyncOrdersOneWarp",
     "StoreShared<u32>(SharedBase() + 4 * t, t);\n"
     "BlockSync();\n"
     "if (t < 32) StoreShared<u32>(SharedBase() + 4 * t, t + 1);\n"
     "if (args.n) WarpSync(); else BlockSync();\n"
     "args.out[t] = LoadShared<u32>(SharedBase() + 4 * (63 - t));",
     PREFIX "(LoadShared" AT "reads what thread [0-9]+ wrote|StoreShared" AT
            "writes what thread [0-9]+ read)" BARRIER},
    {"WriteOverReadersOfAWarp",
     "StoreShared<u32>(SharedBase() + 4 * t, t);\n"
     "BlockSync();\n"
     "args.out[t] = LoadShared<u32>(SharedBase());\n"
     "if (!args.n) BlockSync();\n"
     "if (t == 0) StoreShared<u32>(SharedBase(), 7);",
     PREFIX "(StoreShared" AT
            "writes what (thread [0-9]+ read, and no barrier lies between; a "
            "BlockSync, or within a warp a WarpSync, orders them|threads of "
            "several warps read, and no barrier lies between; a BlockSync "
            "orders them); put one there|LoadShared" AT
            "reads what thread 0 wrote" BARRIER ")"},
    {"TwoWriters",
     "if (t == 0) StoreShared<u32>(SharedBase(), 1);\n"
     "if (!args.n) BlockSync();\n"
     "if (t == 40) StoreShared<u32>(SharedBase(), 2);",
     PREFIX "StoreShared" AT "writes what thread (0|40) wrote" BARRIER},
    {"CopyReadBeforeItsWait",
     "CpAsync<4>(SharedBase() + 4 * t, args.in + t, true);\n"
     "CpAsyncCommit();\n"
     "if (!args.n) CpAsyncWait<0>();\n"
     "args.out[t] = LoadShared<u32>(SharedBase() + 4 * t);\n"
     "CpAsyncWait<0>();",
     PREFIX "LoadShared" AT
            "reads bytes of an asynchronous copy of thread [0-9]+ that has not "
            "landed; a wait of that thread, then a barrier for the others, "
            "comes first; wait for its group"},
    {"CopyReadByAnotherWarpAfterTheWaitAlone",
     "StoreShared<u32>(SharedBase() + 4 * t, t);\n"
     "BlockSync();\n"
     "CpAsync<4>(SharedBase() + 4 * t, args.in + t, true);\n"
     "CpAsyncCommit();\n"
     "CpAsyncWait<0>();\n"
     "if (!args.n) BlockSync();\n"
     "args.out[t] = LoadShared<u32>(SharedBase() + 4 * (63 - t));",
     PREFIX "(LoadShared" AT "reads what thread [0-9]+ wrote|CpAsync" AT
            "writes what thread [0-9]+ read)" BARRIER},
    {"CopyIntoAStageThatIsRead",
     "CpAsync<4>(SharedBase() + 4 * t, args.in + t, true);\n"
     "CpAsyncCommit();\n"
     "CpAsyncWait<0>();\n"
     "BlockSync();\n"
     "args.out[t] = LoadShared<u32>(SharedBase() + 4 * (63 - t));\n"
     "if (!args.n) BlockSync();\n"
     "CpAsync<4>(SharedBase() + 4 * t, args.in + t, true);\n"
     "CpAsyncCommit();\n"
     "CpAsyncWait<0>();",
     PREFIX "(CpAsync" AT "writes what thread [0-9]+ read" BARRIER
            "|LoadShared" AT "(reads what thread [0-9]+ wrote" BARRIER
            "|reads bytes of an asynchronous copy of thread [0-9]+ that has "
            "not landed; a wait of that thread, then a barrier for the others, "
            "comes first; wait for its group))"},
    {"CopyOverACopy",
     "CpAsync<4>(SharedBase() + 4 * t, args.in + t, true);\n"
     "CpAsyncCommit();\n"
     "if (!args.n) CpAsyncWait<0>();\n"
     "CpAsync<4>(SharedBase() + 4 * t, args.in + t, true);\n"
     "CpAsyncCommit();\n"
     "CpAsyncWait<0>();",
     PREFIX "CpAsync" AT
            "writes bytes of an asynchronous copy of thread [0-9]+ that has "
            "not landed; a wait comes first; wait for its group"},
    {"PartSyncOfWarps",
     "StoreShared<u32>(SharedBase() + 4 * t, t);\n"
     "if (!args.n) PartSync<64>();\n"
     "args.out[t] = LoadShared<u32>(SharedBase() + 4 * (63 - t));",
     PREFIX "LoadShared" AT "reads (what thread [0-9]+ wrote" BARRIER
            "|bytes that nothing wrote in this block; .*)"},
    {"ReadWithoutTheWaitAtAnMbarrier",
     "if (t == 0) MbarrierInit(SharedBase() + 128, 32);\n"
     "BlockSync();\n"
     "if (t < 32) {\n"
     "  StoreShared<u32>(SharedBase() + 4 * t, t);\n"
     "  MbarrierArrive(SharedBase() + 128);\n"
     "} else {\n"
     "  if (!args.n) MbarrierWait(SharedBase() + 128, 0);\n"
     "  args.out[t] = LoadShared<u32>(SharedBase() + 4 * (63 - t));\n"
     "}",
     PREFIX "(LoadShared" AT "reads (what thread [0-9]+ wrote" BARRIER
            "|bytes that nothing wrote in this block; .*)|StoreShared" AT
            "writes what thread [0-9]+ read" BARRIER ")"},
    {"CopyReadWithoutTheWaitAtItsMbarrier",
     "if (t == 0) MbarrierInit(SharedBase() + 128, 32);\n"
     "BlockSync();\n"
     "if (t < 32) {\n"
     "  CpAsync<4>(SharedBase() + 4 * t, args.in + t, true);\n"
     "  CpAsyncArrive(SharedBase() + 128);\n"
     "}\n"
     "if (t >= 32 || !args.n) MbarrierWait(SharedBase() + 128, 0);\n"
     "if (t < 32) args.out[t] = LoadShared<u32>(SharedBase() + 4 * (31 - t));",
     PREFIX "LoadShared" AT "reads (what thread [0-9]+ wrote" BARRIER
            "|bytes of an asynchronous copy of thread [0-9]+ that has not "
            "landed; .*|bytes that nothing wrote in this block; .*)"},
    {"StageRefilledBeforeItIsFree",
     "if (t == 0) MbarrierInit(SharedBase() + 128, 1);\n"
     "if (t < 32) StoreShared<u32>(SharedBase() + 4 * t, t);\n"
     "BlockSync();\n"
     "if (t < 32) {\n"
     "  args.out[t] = LoadShared<u32>(SharedBase() + 4 * (31 - t));\n"
     "  WarpSync();\n"
     "  if (t == 0) MbarrierArrive(SharedBase() + 128);\n"
     "} else {\n"
     "  if (!args.n) MbarrierWait(SharedBase() + 128, 0);\n"
     "  StoreShared<u32>(SharedBase() + 4 * (t - 32), 7);\n"
     "}",
     PREFIX "(StoreShared" AT "writes what thread [0-9]+ read" BARRIER
            "|LoadShared" AT "reads what thread [0-9]+ wrote" BARRIER ")"},
    {"ArrivalOfOneLaneBeforeItsWarpIsDone",
     "if (t == 0) MbarrierInit(SharedBase() + 128, 1);\n"
     "if (t < 32) StoreShared<u32>(SharedBase() + 4 * t, t);\n"
     "BlockSync();\n"
     "if (t < 32) {\n"
     "  args.out[t] = LoadShared<u32>(SharedBase() + 4 * (31 - t));\n"
     "  if (!args.n) WarpSync();\n"
     "  if (t == 0) MbarrierArrive(SharedBase() + 128);\n"
     "} else {\n"
     "  MbarrierWait(SharedBase() + 128, 0);\n"
     "  StoreShared<u32>(SharedBase() + 4 * (t - 32), 7);\n"
     "}",
     PREFIX "(StoreShared" AT "writes what thread [0-9]+ read" BARRIER
            "|LoadShared" AT "reads what thread [0-9]+ wrote" BARRIER ")"},
};

INSTANTIATE_TEST_SUITE_P(Kinds, Order, ::testing::ValuesIn(kOrders),
                         [](const ::testing::TestParamInfo<OrderCase>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace kvforge
