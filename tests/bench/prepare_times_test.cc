#include "tools/bench/prepare_times.h"

#include <dlfcn.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/file.h"

namespace kvforge::bench {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(MappedCompilers, AreFoundByTheNameOfTheirFile) {
  EXPECT_THAT(
      MappedCompilers(
          "55d0-55d1 r-xp 0000 fe:01 1 /opt/libnvrtc/bin/kvforge\n"
          "7f00-7f01 r--p 0000 fe:01 2 /usr/lib/libLLVM.so.22.1\n"
          "7f01-7f02 r-xp 0000 fe:01 2 /usr/lib/libLLVM.so.22.1\n"
          "7f02-7f03 r-xp 0000 fe:01 3 /usr/lib/libcuda.so.1\n"
          "7f03-7f04 r-xp 0000 fe:01 4 /x/y z/libnvrtc.so.13 (deleted)\n"
          "7ffe-7fff rw-p 0000 00:00 0 [stack]\n"),
      ElementsAre("/usr/lib/libLLVM.so.22.1",
                  "/x/y z/libnvrtc.so.13 (deleted)"));
  EXPECT_THAT(MappedCompilers(""), IsEmpty());
}

TEST(MappedCompilers, SeesOneThatThisProcessOpens) {
  const auto mapped = [] {
    return MappedCompilers(ReadFile("/proc/self/maps").value_or(""));
  };
  ASSERT_THAT(mapped(), IsEmpty());
  ASSERT_NE(dlopen(KVFORGE_JIT_LIBRARY, RTLD_NOW | RTLD_LOCAL), nullptr)
      << dlerror();
  EXPECT_THAT(mapped(), Contains(EndsWith("/libkvforge_jit.so")));
  EXPECT_THAT(mapped(), Contains(HasSubstr("/libLLVM")));
}

PrepareTimes OfOne(double us, double load_us) {
  PrepareTimes times;
  times.gpu = "NVIDIA \"H200\"";
  times.driver_cuda_version = 13000;
  times.kernels = {{"prepare/store/bf16", "", us, load_us, 34, 1024, 0}};
  return times;
}

TEST(PrepareTimesJson, RoundTrips) {
  PrepareTimes times = OfOne(1500, 1200);
  times.kernels.push_back({"prepare/decode/bf16", "no such kernel"});
  times.compilers = {"/usr/lib/libLLVM.so"};
  const auto read = PrepareTimesFromJson(ToJson(times));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, times);
  EXPECT_FALSE(PrepareTimesFromJson("").ok());
  EXPECT_FALSE(PrepareTimesFromJson("{\"gpu\": 1}").ok());
}

TEST(CombineTimes, TakesMediansAndNamesTheLargest) {
  const std::vector<BenchCase> cases = *SelectCases({"prepare/store/bf16"});
  const std::vector<CaseResult> results = CombineTimes(
      {OfOne(1000, 700), OfOne(9000, 800), OfOne(1200, 1100)}, cases);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].error, "");
  EXPECT_EQ(results[0].one.median, 1200);
  EXPECT_EQ(results[0].one.samples, 3);
  EXPECT_EQ(results[0].row.median, 300);  // of 300, 8200, 100
  EXPECT_EQ(results[0].registers, 34);
  EXPECT_THAT(results[0].detail, HasSubstr("most 9.00 ms, over 3 processes"));
}

TEST(CombineTimes, AMappedCompilerOrAMissingKernelIsAnError) {
  const std::vector<BenchCase> cases = *SelectCases({"prepare/store/bf16"});
  PrepareTimes mapped = OfOne(1000, 700);
  mapped.compilers = {"/usr/lib/libnvrtc.so.13"};
  EXPECT_THAT(CombineTimes({OfOne(1000, 700), mapped}, cases)[0].error,
              HasSubstr("had /usr/lib/libnvrtc.so.13 mapped"));
  PrepareTimes missing = OfOne(0, 0);
  missing.kernels[0].error = "no compiled kernel";
  EXPECT_EQ(CombineTimes({missing}, cases)[0].error, "no compiled kernel");
}

TEST(TimesOfChild, NamesTheCommandThatFails) {
  const auto ended = TimesOfChild({"/bin/sh", "-c", "exit 3"});
  EXPECT_THAT(std::string(ended.status().message()), HasSubstr("exit code 3"));
  const auto missing = TimesOfChild({"/no/such/program"});
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("cannot run /no/such/program"));
  const auto mute = TimesOfChild({"/bin/true"});
  EXPECT_THAT(std::string(mute.status().message()),
              HasSubstr("printed no times"));
  const auto told = TimesOfChild(
      {"/bin/sh", "-c",
       "echo '{\"gpu\": \"'$KVFORGE_JIT'\", \"driver_cuda_version\": 0, "
       "\"kernels\": [], \"compilers\": []}'"});
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->gpu, "off");
}

}  // namespace
}  // namespace kvforge::bench
