// Run calls of arguments that pass allocate nothing once their cache's views
// are known: every decode step makes some of each layer.
#include <gtest/gtest.h>

#include <atomic>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/formats/format.h"
#include "tests/kernels/run_calls.h"

namespace {

std::atomic<int64_t> allocations = 0;

void* Allocate(size_t bytes, size_t alignment) {
  ++allocations;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Of the whole binary, its shared libraries included. The array and the nothrow
// forms come to these.
void* operator new(size_t bytes) {
  return Allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace kvforge {
namespace {

TEST(AllocationCount, SeesTextThatIsMade) {
  const int64_t before = allocations;
  EXPECT_TRUE(absl::StartsWith(absl::StrCat("k.block_scale", ".base"), "k"));
  EXPECT_GT(allocations, before);
}

class LaunchPath : public ::testing::TestWithParam<std::string> {};

TEST_P(LaunchPath, AllocatesNothing) {
  const std::unique_ptr<Engine> engine = RecordingEngine();
  for (const RunCall& call : MakeRunCalls(*engine, {GetParam()})) {
    ASSERT_TRUE(call.run().ok());  // keeps what it finds of the views
    const int64_t before = allocations;
    const absl::Status status = call.run();
    const int64_t during = allocations - before;
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(during, 0) << call.spec;
  }
}

std::vector<std::string> Specs() {
  std::vector<std::string> specs = {
      "merge/d128/bf16",
      "merge/d512/f32",
      "extend/bf16/d128/g4/page16/bf16/alibi=1/sinks=1/v=e4m3_row",
      "extend/bf16/d128/g4/page16/bf16/mask=custom/sparse=64",
      "decode/bf16/d128/g4/page16/bf16/order=hnd/q_max=4/sinks=1",
      "decode/e4m3_row/d128/g4/page1/bf16/dv=64/out=f32/sparse=32"};
  for (const KvFormat& format : kFormats) {
    if (!format.served) continue;
    for (const char* kernel : {"store", "gather"}) {
      specs.push_back(
          absl::StrCat(kernel, "/", format.name, "/d128/g1/page16/bf16"));
    }
    for (const char* kernel : {"decode", "extend"}) {
      specs.push_back(
          absl::StrCat(kernel, "/", format.name, "/d128/g4/page16/bf16"));
    }
  }
  return specs;
}

INSTANTIATE_TEST_SUITE_P(EverySpec, LaunchPath, ::testing::ValuesIn(Specs()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (!std::isalnum(static_cast<unsigned char>(c)))
                               c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace kvforge
