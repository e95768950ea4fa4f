#include "tools/case_runner.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>

#include "absl/strings/str_cat.h"
#include "compiler/tile/tile_selector.h"
#include "kernels/decode.h"
#include "tools/case_on_target.h"

namespace kvforge {
namespace {

constexpr int kFewestSplits = 3;  // a merge of two hides an ordering mistake

absl::Status Mismatch(const ErrorReport& errors) {
  if (errors.ok()) return absl::OkStatus();
  std::string text;
  if (errors.out_ratio > 1) {
    absl::StrAppend(&text, "out is ", errors.out_ratio, " of its bound at ",
                    errors.worst_out);
  }
  if (errors.lse_ratio > 1) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", errors.worst_lse);
  }
  return absl::DataLossError(text);
}

double Milliseconds(const std::function<absl::Status()>& run,
                    absl::Status& status) {
  const auto start = std::chrono::steady_clock::now();
  status = run();
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now() - start)
      .count();
}

class CaseRunner {
 public:
  CaseRunner(Engine& engine, const AttentionCase& problem, bool other_tiles)
      : engine_(engine), problem_(problem), other_tiles_(other_tiles) {}

  void RunLayout(const CaseLayout& layout) {
    layout_ = &layout;
    // A case that extend does not serve is not stored either: in strict mode
    // only what is served is in the cache.
    const absl::StatusOr<KernelSpec> extend_spec =
        CaseSpec(problem_, KernelKind::kExtend, layout.order);
    if (!extend_spec.ok()) return AddUnsaid("extend", extend_spec.status());
    const absl::StatusOr<KernelSpec> store_spec =
        CaseSpec(problem_, KernelKind::kStore, layout.order);
    if (!store_spec.ok()) return AddUnsaid("store", store_spec.status());
    const absl::StatusOr<std::shared_ptr<const PreparedKernel>> store =
        engine_.Prepare(*store_spec);
    if (!store.ok()) return AddUnprepared("store", store.status());
    auto on_target = CaseOnTarget::Create(engine_, problem_, layout);
    if (!on_target.ok()) return AddUnprepared("store", on_target.status());
    KernelResult result = NewResult("store");
    result.run_ms = Milliseconds(
        [&] {
          return (*on_target)->Store(**store, (*on_target)->StoreArguments());
        },
        result.status);
    if (result.status.ok()) result.status = (*on_target)->CheckStored();
    const bool stored = result.status.ok();
    Add(std::move(result));
    if (!stored) return;
    RunExtendKernel(**on_target, *extend_spec);
    if (FitsDecode(problem_)) RunDecodeKernels(**on_target);
  }

  CaseRun Take() { return std::move(run_); }

 private:
  KernelResult NewResult(const std::string& kernel) const {
    KernelResult result;
    result.kernel = kernel;
    result.layout = layout_->name;
    return result;
  }

  void Add(KernelResult result) {
    if (result.failed()) run_.failed = true;
    run_.results.push_back(std::move(result));
  }

  // No SPEC says this case: a number in it is out of range, or not served.
  void AddUnsaid(const std::string& kernel, const absl::Status& status) {
    AddWithout(kernel, status,
               IsRefusal(status) || absl::IsInvalidArgument(status));
  }

  void AddUnprepared(const std::string& kernel, const absl::Status& status) {
    AddWithout(kernel, status, IsRefusal(status));
  }

  void AddWithout(const std::string& kernel, const absl::Status& status,
                  bool refused) {
    KernelResult result = NewResult(kernel);
    result.status = status;
    result.refused = refused;
    // Decode may be refused where extend serves the case.
    if (result.refused && kernel != "decode") run_.refused = true;
    Add(std::move(result));
  }

  void RunAttention(CaseOnTarget& on_target, const std::string& kernel,
                    bool padding_kept,
                    const std::function<absl::Status()>& launch) {
    KernelResult result = NewResult(kernel);
    result.run_ms = Milliseconds(launch, result.status);
    if (result.status.ok()) {
      absl::StatusOr<ErrorReport> errors = on_target.Compare(padding_kept);
      result.status = errors.status();
      if (errors.ok()) {
        result.errors = *std::move(errors);
        result.status = Mismatch(result.errors);
      }
    }
    Add(std::move(result));
  }

  void RunExtendKernel(CaseOnTarget& on_target, const KernelSpec& spec) {
    const auto kernel = engine_.Prepare(spec);
    if (!kernel.ok()) return AddUnprepared("extend", kernel.status());
    RunAttention(on_target, "extend", /*padding_kept=*/true, [&] {
      return on_target.Extend(**kernel, on_target.AttentionArguments());
    });
    if (!other_tiles_) return;
    for (const NamedTile& other : OtherExtendTiles(spec, engine_.gpu())) {
      const std::string name = absl::StrCat("extend/", other.name);
      const auto in_tile = engine_.Prepare(spec, other.tile);
      if (!in_tile.ok()) {
        AddUnprepared(name, in_tile.status());
        continue;
      }
      RunAttention(on_target, name, /*padding_kept=*/true, [&] {
        return on_target.Extend(**in_tile, on_target.AttentionArguments());
      });
      if (!other.tile.images) continue;
      RunAttention(on_target, absl::StrCat(name, "/passes"),
                   /*padding_kept=*/true, [&] {
                     return on_target.ExtendInPasses(
                         **in_tile, on_target.AttentionArguments());
                   });
    }
  }

  void RunDecodeKernels(CaseOnTarget& on_target) {
    const absl::StatusOr<KernelSpec> spec =
        CaseSpec(problem_, KernelKind::kDecode, layout_->order);
    if (!spec.ok()) return AddUnsaid("decode", spec.status());
    const auto kernel = engine_.Prepare(*spec);
    if (!kernel.ok()) return AddUnprepared("decode", kernel.status());
    RunAttention(on_target, "decode", /*padding_kept=*/true, [&] {
      return on_target.Decode(**kernel, on_target.AttentionArguments(), 1);
    });
    // Another number of parts in each layout.
    const int splits = kFewestSplits + splits_++ % 3;
    RunAttention(on_target, absl::StrCat("decode/splits=", splits),
                 /*padding_kept=*/true, [&] {
                   return on_target.Decode(
                       **kernel, on_target.AttentionArguments(), splits);
                 });
  }

  Engine& engine_;
  const AttentionCase& problem_;
  const bool other_tiles_;
  const CaseLayout* layout_ = nullptr;
  int splits_ = 0;
  CaseRun run_;
};

}  // namespace

bool IsRefusal(const absl::Status& status) {
  return absl::IsUnimplemented(status) || absl::IsResourceExhausted(status);
}

CaseRun RunCase(Engine& engine, const AttentionCase& problem, int first_layout,
                int layouts, bool other_tiles) {
  constexpr int kLayouts = static_cast<int>(std::size(kCaseLayouts));
  CaseRunner runner(engine, problem, other_tiles);
  for (int i = 0; i < std::min(layouts, kLayouts); ++i) {
    runner.RunLayout(kCaseLayouts[(first_layout + i) % kLayouts]);
  }
  return runner.Take();
}

}  // namespace kvforge
