// What the tests of kernels/ share: the engine that a test binary was started
// for, and cases run on it. The same tests run on the CPU and on a GPU:
//
//   case_suite_test                          on the CPU, text of sm_80
//   case_suite_test --gpu sm_89              on the CPU, text of sm_89
//   case_suite_test --target cuda            on GPU 0
//   case_suite_test --target cuda --all-tiles
//   case_suite_test --list-specs --gpu sm_90 prints what the tests prepare
//   case_suite_test --executed FILE          writes a record of what ran
//
// Cache folders and strictness are the environment's (runtime/base/knobs.h).
#ifndef KVFORGE_TESTS_KERNELS_TEST_ENGINE_H_
#define KVFORGE_TESTS_KERNELS_TEST_ENGINE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/decode.h"
#include "kernels/engine.h"
#include "kernels/target_memory.h"
#include "tools/case_generator.h"
#include "tools/case_on_target.h"
#include "tools/case_runner.h"

namespace kvforge {

#define KVFORGE_EXPECT_OK(expression)                       \
  do {                                                      \
    const absl::Status expect_ok_status = (expression);     \
    EXPECT_TRUE(expect_ok_status.ok()) << expect_ok_status; \
  } while (false)

// A test of what only the CPU's runs can tell.
#define KVFORGE_HOST_ONLY(what)                                \
  do {                                                         \
    if (OnCuda()) GTEST_SKIP() << "on the CPU only: " << what; \
  } while (false)

// A test of what only a GPU can tell. Also entered to list its kernels.
#define KVFORGE_GPU_ONLY(what)                                              \
  do {                                                                      \
    if (!OnCuda() && !ListingSpecs()) {                                     \
      GTEST_SKIP() << "needs a GPU (--target cuda): did not run: " << what; \
    }                                                                       \
  } while (false)

// The command line of a test binary.
struct TestFlags {
  TargetKind target = TargetKind::kHost;
  std::string gpu =
      "sm_80";  // whose text the CPU runs, or specs are listed for
  bool list_specs = false;
  // Extend also in tiles of other kinds on a GPU, and in what is listed for
  // one; on the CPU always.
  bool all_tiles = false;
  // File that gets the kernels that ran, if every test passes; "" = none.
  std::string executed;
  // Of random_cases_test.
  int random_cases = 0;  // 0 = the target's default
  uint64_t random_seed = 20;
  std::string random_case;  // "FAMILY:CASE": this one only; "" = all
  // Of compiled_facts_test.
  size_t points = 400;  // 0 = all
  uint64_t seed = 1;
  std::string json;  // file that gets what was found; "" = none
};
const TestFlags& Flags();

bool OnCuda();
// Kernels are recorded instead of compiled, launches do nothing, and what a
// test expects does not matter.
bool ListingSpecs();

// Of the whole process: a kernel is compiled once for all tests.
Engine& TestEngine();

// That a kernel of these formats ran and was checked.
void RecordExecuted(KernelKind kernel, const KvFormat& k, const KvFormat& v);

// For the test of the harness: the next check of the context finds it lost.
void LoseContextForTest();

// Copies between the host's memory and any memory of the target.
void WriteTarget(void* to, const void* from, size_t bytes);
void ReadTarget(void* to, const void* from, size_t bytes);

TargetBuffer Allocated(size_t bytes, size_t alignment = 16);
template <typename T>
TargetBuffer Uploaded(const std::vector<T>& values) {
  TargetBuffer buffer = Allocated(values.size() * sizeof(T));
  KVFORGE_EXPECT_OK(
      buffer.CopyFromHost(values.data(), values.size() * sizeof(T)));
  return buffer;
}
template <typename T>
std::vector<T> Downloaded(const TargetBuffer& buffer) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  KVFORGE_EXPECT_OK(buffer.CopyToHost(values.data(), buffer.bytes()));
  return values;
}

std::shared_ptr<const PreparedKernel> Prepared(const KernelSpec& spec);
std::shared_ptr<const PreparedKernel> Prepared(const std::string& spec);
// Whether tests run extend also in tiles of kinds the selector does not choose.
bool WithOtherTiles();
struct KernelInTile {
  std::string name;
  std::shared_ptr<const PreparedKernel> kernel;
};
// Extend in those tiles; none where they are not to run.
std::vector<KernelInTile> PreparedInOtherTiles(const KernelSpec& spec);

AttentionCase Generated(const CaseOptions& options);

// A case with its kernels, stored and checked, in one layout.
struct Bench {
  explicit Bench(AttentionCase the_problem, int layout_index = 0);

  std::shared_ptr<const PreparedKernel> Kernel(KernelKind kind) const;
  std::shared_ptr<const PreparedKernel> Decoder() const {
    return Kernel(KernelKind::kDecode);
  }

  void Store();
  // Expects what the last kernel wrote to be right.
  void ExpectRight(const char* kernel, bool padding_kept = true);
  // Extend, decode in one part and in `splits`, over `args`.
  void ExpectAllRight(const AttentionArgs& args, int splits = 3);

  AttentionCase problem;
  const CaseLayout& layout;
  std::unique_ptr<CaseOnTarget> target;
};

// Every kernel of the case in `layouts` layouts from `first_layout` on.
void ExpectCaseRight(const CaseOptions& options, int first_layout = 0,
                     int layouts = 2);

// Prepares every kernel of the case, launches none: for listing.
void PrepareCase(const AttentionCase& problem, int first_layout, int layouts);

}  // namespace kvforge

#endif  // KVFORGE_TESTS_KERNELS_TEST_ENGINE_H_
