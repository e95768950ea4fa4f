// What the twin checks of a warpgroup's products, bulk copies and named
// barriers ends the launch with a sentence that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/host/host_kernel.h"

namespace kvforge {

struct ProductFault {
  const char* name;
  const char* body;      // args.n brings the fault about
  const char* sentence;  // regular expression; matches the whole message
};

void PrintTo(const ProductFault& fault, std::ostream* out) {
  *out << fault.name;
}

namespace {

// Two operands of ones, 64 rows each, and sums of 64.
constexpr char kOperands[] =
    "float d[8][4];\n"
    "for (int i = 0; i < 32; ++i) d[i / 4][i % 4] = 0;\n"
    "[[maybe_unused]] const u64 a = SharedMatrix(SharedBase(), 16, 1024);\n"
    "[[maybe_unused]] const u64 b = SharedMatrix(SharedBase() + 8192, 16, "
    "1024);\n"
    "for (int i = t; i < 4096; i += 128) {\n"
    "  StoreShared<u32>(SharedBase() + 4 * i, 0x3c003c00u);\n"
    "}\n";

class Products : public ::testing::TestWithParam<ProductFault> {};

TEST_P(Products, FaultEndsTheLaunch) {
  const absl::StatusOr<std::unique_ptr<HostModule>> module =
      LoadTestKernel(absl::StrCat(kOperands, GetParam().body));
  ASSERT_TRUE(module.ok()) << module.status();
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const TestLaunch launch = {
        .blocks = 2, .threads = 128, .shared_bytes = 16384, .seed = seed};
    const auto clean = RunTestKernel(**module, launch, 0);
    ASSERT_TRUE(clean.ok()) << "seed " << seed << ": " << clean.status();
    const absl::Status status = RunTestKernel(**module, launch, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << "seed " << seed;
    EXPECT_THAT(std::string(status.message()),
                ::testing::MatchesRegex(GetParam().sentence));
  }
}

#define PREFIX "host launch: thread [0-9]+ of block [01]: "

constexpr ProductFault kFaults[] = {
    {"WithoutBegin",
     "AsyncFence();\nBlockSync();\n"
     "if (!args.n) WgmmaBegin();\n"
     "Wgmma<64>::F16<false>(d, a, b, false);\n"
     "WgmmaCommit();\nWgmmaWait<0>(d);",
     PREFIX "asks for a product without a WgmmaBegin since the last wait; "
            "registers written before need one; put it ahead"},
    {"WithoutAFence",
     "if (!args.n) AsyncFence();\n"
     "BlockSync();\nWgmmaBegin();\n"
     "Wgmma<64>::F16<false>(d, a, b, false);\n"
     "WgmmaCommit();\nWgmmaWait<0>(d);",
     PREFIX "Wgmma of 16 bytes at shared address 0x[0-9a-f]+ reads what thread "
            "[0-9]+ wrote without an AsyncFence behind it; products do not see "
            "it; let that thread fence before the barrier"},
    {"FenceBehindTheBarrier",
     "if (!args.n) AsyncFence();\nBlockSync();\n"
     "if (args.n && t < 64) AsyncFence();\n"
     "WgmmaBegin();\nWgmma<64>::F16<false>(d, a, b, false);\n"
     "WgmmaCommit();\nWgmmaWait<0>(d);",
     PREFIX "Wgmma of 16 bytes .* wrote without an AsyncFence behind it; .*"},
    {"NoBarrierAheadOfIt",
     "AsyncFence();\nif (!args.n) BlockSync();\nWgmmaBegin();\n"
     "Wgmma<64>::F16<false>(d, a, b, false);\n"
     "WgmmaCommit();\nWgmmaWait<0>(d);",
     PREFIX "Wgmma of 16 bytes .* reads (what thread [0-9]+ wrote, and no "
            "barrier lies between; .*|bytes that nothing wrote in this block; "
            ".*)"},
    {"OperandOverwrittenAheadOfTheWait",
     "AsyncFence();\nBlockSync();\nWgmmaBegin();\n"
     "Wgmma<64>::F16<false>(d, a, b, false);\nWgmmaCommit();\n"
     "if (!args.n) { WgmmaWait<0>(d); BlockSync(); }\n"
     "StoreShared<u32>(SharedBase() + 4 * t, 0u);\n"
     "if (args.n) { WgmmaWait<0>(d); BlockSync(); }",
     PREFIX "(Wgmma of 16 bytes|StoreShared of 4 bytes) .*"},
    {"NoWaitBeforeTheEnd",
     "AsyncFence();\nBlockSync();\nWgmmaBegin();\n"
     "Wgmma<64>::F16<false>(d, a, b, false);\nWgmmaCommit();\n"
     "if (!args.n) WgmmaWait<0>(d);",
     PREFIX "exits with 1 products that no wait covers; all end before the "
            "kernel does; commit and wait for them"},
    {"NotCommitted",
     "AsyncFence();\nBlockSync();\nWgmmaBegin();\n"
     "Wgmma<64>::F16<false>(d, a, b, false);\n"
     "if (!args.n) WgmmaCommit();\nWgmmaWait<0>(d);",
     PREFIX "exits with 1 products that no wait covers; .*"},
    {"AWarpBranchesAroundIt",
     "AsyncFence();\nBlockSync();\n"
     "if (!args.n || t < 96) {\n"
     "  WgmmaBegin();\nWgmma<64>::F16<false>(d, a, b, false);\n"
     "  WgmmaCommit();\nWgmmaWait<0>(d);\n}",
     PREFIX "exits after [01] products, and warp [0-3] of its warpgroup has "
            "[01]; all four warps take part in each; let none branch around "
            "one"},
    {"PastTheArena",
     "AsyncFence();\nBlockSync();\nWgmmaBegin();\n"
     "Wgmma<64>::F16<false>(d, a, b + (args.n ? 64 : 0), false);\n"
     "WgmmaCommit();\nWgmmaWait<0>(d);",
     PREFIX "Wgmma of 16 bytes at shared address 0x4[4-7][0-9a-f]+ is out of "
            "bounds; the arena has 16384 bytes from 0x400; check the address "
            "and kvforge_shared_bytes"},
    {"BulkCopyMisaligned",
     "BlockSync();\nif (t == 0) MbarrierInit(SharedBase(), 1);\nBlockSync();\n"
     "if (t == 0) {\n  ExpectBytes(SharedBase(), 64);\n"
     "  BulkCopy(SharedBase() + 64, args.in + args.n, 64, SharedBase());\n"
     "  MbarrierArrive(SharedBase());\n}\nMbarrierWait(SharedBase(), 0);",
     PREFIX "BulkCopy of 16 bytes at global address 0x[0-9a-f]+ is misaligned; "
            "an access is aligned to its size; check the base and the strides"},
    {"BulkCopyReadWithoutItsWait",
     "BlockSync();\nif (t == 0) MbarrierInit(SharedBase(), 1);\nBlockSync();\n"
     "if (t == 0) {\n  ExpectBytes(SharedBase(), 512);\n"
     "  BulkCopy(SharedBase() + 512, args.in, 512, SharedBase());\n"
     "  MbarrierArrive(SharedBase());\n}\n"
     "if (!args.n) MbarrierWait(SharedBase(), 0);\n"
     "args.out[t] = LoadShared<u32>(SharedBase() + 512 + 4 * t);",
     PREFIX "(LoadShared of 4 bytes|BulkCopy of 512 bytes) .*"},
    {"NamedBarrierOfTwoSizes", "NamedSync(2, args.n && t < 32 ? 64 : 128);",
     PREFIX "comes to named barrier 2 of (64|128) threads; numbers are 2 to "
            "15, threads whole warps of the block and the same for all that "
            "meet; let them agree"},
    {"NamedBarrierNobodyElseComesTo",
     "if (t < (args.n ? 32 : 64)) NamedSync(3, 64);",
     PREFIX "no thread of the block can run: threads 0 to 31 wait in "
            "NamedSync; .*"},
    {"NamedBarrierOnlyArrivedAt",
     "if (t < 32) StoreShared<u32>(SharedBase() + 4 * t, t);\n"
     "if (t < 32) NamedArrive(3, 64);\n"
     "if (t >= 32 && t < 64) {\n"
     "  if (args.n) NamedArrive(3, 64); else NamedSync(3, 64);\n"
     "  args.out[t] = LoadShared<u32>(SharedBase() + 4 * (t - 32));\n}",
     PREFIX "(LoadShared|StoreShared) of 4 bytes .*"},
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, Products, ::testing::ValuesIn(kFaults),
    [](const ::testing::TestParamInfo<ProductFault>& info) {
      return std::string(info.param.name);
    });

// Accumulators are no one's until the wait: a use ahead of it is NaN.
TEST(Accumulators, AreNanUntilTheWait) {
  const auto module = LoadTestKernel(absl::StrCat(
      kOperands,
      "AsyncFence();\nBlockSync();\nWgmmaBegin();\n"
      "Wgmma<64>::F16<false>(d, a, b, false);\n"
      "WgmmaCommit();\nconst u32 early = Bits(d[0][0]);\nWgmmaWait<0>(d);\n"
      "args.out[2 * t] = early;\nargs.out[2 * t + 1] = Bits(d[0][0]);"));
  ASSERT_TRUE(module.ok()) << module.status();
  const auto out =
      RunTestKernel(**module, {.threads = 128, .shared_bytes = 16384}, 0);
  ASSERT_TRUE(out.ok()) << out.status();
  for (int t = 0; t < 128; ++t) {
    EXPECT_EQ((*out)[2 * t] & 0x7fc00000, 0x7fc00000u);
    EXPECT_EQ((*out)[2 * t + 1], 0x41800000u);  // 16
  }
}

// Of two groups, the wait for all but one ends the first alone.
TEST(Accumulators, OfALaterGroupStayUnderWay) {
  const auto module = LoadTestKernel(absl::StrCat(
      kOperands,
      "float e[8][4];\nfor (int i = 0; i < 32; ++i) e[i / 4][i % 4] = 3;\n"
      "AsyncFence();\nBlockSync();\nWgmmaBegin();\n"
      "Wgmma<64>::F16<false>(d, a, b, false);\nWgmmaCommit();\n"
      "Wgmma<64>::F16<false>(e, a, b, true);\nWgmmaCommit();\n"
      "WgmmaWait<1>(d);\nargs.out[4 * t] = Bits(d[7][3]);\n"
      "args.out[4 * t + 1] = Bits(e[7][3]);\nWgmmaWait<0>(e);\n"
      "args.out[4 * t + 2] = Bits(e[7][3]);"));
  ASSERT_TRUE(module.ok()) << module.status();
  const auto out =
      RunTestKernel(**module, {.threads = 128, .shared_bytes = 16384}, 0);
  ASSERT_TRUE(out.ok()) << out.status();
  for (int t = 0; t < 128; ++t) {
    EXPECT_EQ((*out)[4 * t], 0x41800000u);  // 16
    EXPECT_EQ((*out)[4 * t + 1] & 0x7fc00000, 0x7fc00000u);
    EXPECT_EQ((*out)[4 * t + 2], 0x41980000u);  // 19
  }
}

// Sums of 8-bit products keep 13 bits behind the first of the largest term: 32
// times 1 is nothing beside 2^14, and is not lost beside 2^13.
TEST(Accumulators, OfEightBitProductsAreNarrow) {
  const auto module = LoadTestKernel(absl::StrCat(
      kOperands,
      "BlockSync();\nfor (int i = t; i < 4096; i += 128) {\n"
      "  StoreShared<u32>(SharedBase() + 4 * i, 0x38383838u);\n}\n"
      "d[0][0] = 16384.0f;\nd[0][1] = 8192.0f;\n"
      "AsyncFence();\nBlockSync();\nWgmmaBegin();\n"
      "Wgmma<64>::E4m3(d, a, b, true);\nWgmmaCommit();\nWgmmaWait<0>(d);\n"
      "args.out[2 * t] = Bits(d[0][0]);\n"
      "args.out[2 * t + 1] = Bits(d[0][1]);"));
  ASSERT_TRUE(module.ok()) << module.status();
  const auto out =
      RunTestKernel(**module, {.threads = 128, .shared_bytes = 16384}, 0);
  ASSERT_TRUE(out.ok()) << out.status();
  for (int t = 0; t < 128; ++t) {
    EXPECT_EQ((*out)[2 * t], 0x46800000u);      // 16384
    EXPECT_EQ((*out)[2 * t + 1], 0x46008000u);  // 8224
  }
}

}  // namespace
}  // namespace kvforge
