// What the tests of kernels/ share: an engine on the CPU, and cases run on it.
#ifndef KVFORGE_TESTS_KERNELS_TEST_ENGINE_H_
#define KVFORGE_TESTS_KERNELS_TEST_ENGINE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/decode.h"
#include "kernels/engine.h"
#include "tools/case_generator.h"
#include "tools/case_on_target.h"
#include "tools/case_runner.h"

namespace kvforge {

#define KVFORGE_EXPECT_OK(expression)                       \
  do {                                                      \
    const absl::Status expect_ok_status = (expression);     \
    EXPECT_TRUE(expect_ok_status.ok()) << expect_ok_status; \
  } while (false)

// Of the whole process, with the cache folders of the environment: a kernel is
// compiled once for all tests.
inline Engine& HostEngine() {
  static const std::unique_ptr<Engine> engine = [] {
    absl::StatusOr<EngineOptions> options = EngineOptionsFromEnvironment();
    EXPECT_TRUE(options.ok()) << options.status();
    absl::StatusOr<std::unique_ptr<Engine>> created =
        Engine::Create(*std::move(options));
    EXPECT_TRUE(created.ok()) << created.status();
    return *std::move(created);
  }();
  return *engine;
}

inline std::shared_ptr<const PreparedKernel> Prepared(const std::string& text) {
  const absl::StatusOr<KernelSpec> spec = ParseSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  absl::StatusOr<std::shared_ptr<const PreparedKernel>> kernel =
      HostEngine().Prepare(*spec);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  return *std::move(kernel);
}

inline AttentionCase Generated(const CaseOptions& options) {
  absl::StatusOr<AttentionCase> problem = GenerateCase(options);
  EXPECT_TRUE(problem.ok()) << problem.status();
  return *std::move(problem);
}

// A case with its kernels, stored and checked, in one layout.
struct Bench {
  explicit Bench(AttentionCase the_problem, int layout_index = 0)
      : problem(std::move(the_problem)), layout(kCaseLayouts[layout_index]) {
    auto created = CaseOnTarget::Create(HostEngine(), problem, layout);
    EXPECT_TRUE(created.ok()) << created.status();
    target = *std::move(created);
  }

  std::shared_ptr<const PreparedKernel> Kernel(KernelKind kind) const {
    const absl::StatusOr<KernelSpec> spec =
        CaseSpec(problem, kind, layout.order);
    EXPECT_TRUE(spec.ok()) << spec.status();
    auto kernel = HostEngine().Prepare(*spec);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return *std::move(kernel);
  }
  std::shared_ptr<const PreparedKernel> Decoder() const {
    return Kernel(KernelKind::kDecode);
  }

  void Store() {
    KVFORGE_EXPECT_OK(
        target->Store(*Kernel(KernelKind::kStore), target->StoreArguments()));
    KVFORGE_EXPECT_OK(target->CheckStored());
  }

  // Expects what the last kernel wrote to be right.
  void ExpectRight(const char* kernel, bool padding_kept = true) {
    const absl::StatusOr<ErrorReport> errors = target->Compare(padding_kept);
    ASSERT_TRUE(errors.ok()) << errors.status();
    EXPECT_TRUE(errors->ok())
        << problem.name << " " << kernel << ": out " << errors->out_ratio
        << " of its bound at " << errors->worst_out << "; lse "
        << errors->lse_ratio << " at " << errors->worst_lse;
  }

  // Extend, decode in one part and in `splits`, over `args`.
  void ExpectAllRight(const AttentionArgs& args, int splits = 3) {
    KVFORGE_EXPECT_OK(target->Extend(*Kernel(KernelKind::kExtend), args));
    ExpectRight("extend");
    if (!FitsDecode(problem)) return;
    KVFORGE_EXPECT_OK(target->Decode(*Decoder(), args, 1));
    ExpectRight("decode");
    KVFORGE_EXPECT_OK(target->Decode(*Decoder(), args, splits));
    ExpectRight("decode with splits");
  }

  AttentionCase problem;
  const CaseLayout& layout;
  std::unique_ptr<CaseOnTarget> target;
};

// Every kernel of the case in `layouts` layouts from `first_layout` on.
inline void ExpectCaseRight(const CaseOptions& options, int first_layout = 0,
                            int layouts = 2) {
  const AttentionCase problem = Generated(options);
  const CaseRun run = RunCase(HostEngine(), problem, first_layout, layouts);
  EXPECT_FALSE(run.results.empty());
  for (const KernelResult& result : run.results) {
    EXPECT_TRUE(result.status.ok())
        << problem.name << " " << result.kernel << " " << result.layout << ": "
        << result.status;
  }
}

}  // namespace kvforge

#endif  // KVFORGE_TESTS_KERNELS_TEST_ENGINE_H_
