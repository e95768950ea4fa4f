#include "tools/tune/candidate_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "tools/paged_cache.h"
#include "tools/tolerance.h"
#include "tools/tune/attention_run.h"

namespace kvforge::tune {
namespace {

// One key past tiles of 16 to 128, whole tiles, and less than one.
constexpr int kKvLens[] = {257, 64, 17, 130};
constexpr int kExtendLens[] = {65, 64, 1, 33};  // query tokens

// Rising scores: a step of kRise, in natural units, each kRiseKeys keys; after
// so many steps from the beginning. More than a tile's sums absorb unscaled.
constexpr float kRise = 6;
constexpr int kRiseKeys = 16;
constexpr int kRiseSteps = 6;

const CaseLayout& LayoutFor(SlotOrder order) {
  return *std::find_if(std::begin(kCaseLayouts), std::end(kCaseLayouts),
                       [order](const CaseLayout& layout) {
                         return layout.order == order && !layout.interleaved &&
                                layout.page_pad_bytes == 0;
                       });
}

}  // namespace

absl::StatusOr<CaseOptions> CaseFor(const KernelSpec& spec, int num_kv_heads) {
  if (!spec.score.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("tune: ", spec.Text(),
                     " has a score function, whose reference is not "
                     "known; softcap, ALiBi, windows, masks and "
                     "selections are tuned; tune the SPEC without "
                     "score= and give its tile to Prepare"));
  }
  CaseOptions options;
  options.name = spec.Text();
  options.format = std::string(spec.k_format->name);
  options.v_format = std::string(spec.v_format->name);
  options.head_dim = spec.head_dim;
  options.v_head_dim = spec.v_head_dim;
  options.num_kv_heads = num_kv_heads;
  options.num_q_heads = num_kv_heads * spec.group;
  options.page_size = spec.page_size;
  for (size_t i = 0; i < std::size(kKvLens); ++i) {
    options.kv_lens.push_back(kKvLens[i]);
    options.q_lens.push_back(spec.kernel == KernelKind::kExtend
                                 ? kExtendLens[i]
                                 : (i % 2 == 0 ? spec.q_max : 1));
  }
  options.causal = spec.mask == MaskKind::kCausal;
  if (spec.mask == MaskKind::kCustom) {
    options.mask = [](int b, int t, int j) { return (b + 3 * t + j) % 5 != 0; };
  }
  options.window = spec.window;
  options.softcap = spec.softcap;
  options.sinks = spec.sinks;
  options.alibi = spec.alibi;
  options.sparse_block = spec.sparse_block;
  options.compute = spec.compute;
  options.query_type = spec.type;
  options.out_type = spec.out;
  return options;
}

absl::StatusOr<std::unique_ptr<CandidateCheck>> CandidateCheck::Create(
    Engine& engine, const KernelSpec& spec, int num_kv_heads) {
  std::unique_ptr<CandidateCheck> check(new CandidateCheck(engine));
  for (const bool rising : {false, true}) {
    ASSIGN_OR_RETURN(CaseOptions options, CaseFor(spec, num_kv_heads));
    if (rising) {
      // q . k / sqrt(head_dim) = kRise * step.
      const float unit = kRise / std::sqrt(static_cast<float>(spec.head_dim));
      options.q = [](int64_t, int, int) { return 1.0f; };
      options.k = [unit](int64_t token, int, int) {
        return unit * static_cast<float>(token / kRiseKeys % kRiseSteps);
      };
    }
    auto stored = std::make_unique<StoredCase>();
    ASSIGN_OR_RETURN(stored->problem, GenerateCase(options));
    ASSIGN_OR_RETURN(
        stored->target,
        CaseOnTarget::Create(engine, stored->problem, LayoutFor(spec.order)));
    ASSIGN_OR_RETURN(const KernelSpec store_spec,
                     CaseSpec(stored->problem, KernelKind::kStore, spec.order));
    ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedKernel> store,
                     engine.Prepare(store_spec));
    CaseOnTarget& target = *stored->target;
    RETURN_IF_ERROR(target.Store(*store, target.StoreArguments()));
    RETURN_IF_ERROR(target.CheckStored());
    check->cases_.push_back(std::move(stored));
  }
  return check;
}

absl::Status CandidateCheck::Check(const PreparedKernel& kernel,
                                   const CandidateParts& parts) {
  for (const auto& stored : cases_) {
    RETURN_IF_ERROR(CheckCase(*stored, kernel, parts));
    if (kernel.spec().kernel != KernelKind::kDecode) continue;
    // A GPU's grid cuts so small a case into steps, each of which is another
    // block's: one block takes them all, one after the other.
    CandidateParts one_block = parts;
    one_block.blocks = 1;
    one_block.heads_per_block = std::max(1, parts.heads_per_block);
    RETURN_IF_ERROR(CheckCase(*stored, kernel, one_block));
  }
  return absl::OkStatus();
}

absl::Status CandidateCheck::CheckCase(const StoredCase& stored,
                                       const PreparedKernel& kernel,
                                       const CandidateParts& parts) {
  const AttentionArgs args = stored.target->AttentionArguments();
  ASSIGN_OR_RETURN(const std::unique_ptr<AttentionRun> run,
                   AttentionRun::Create(engine_, kernel, parts, args));
  RETURN_IF_ERROR(run->RunOnce(args));
  ASSIGN_OR_RETURN(const std::vector<uint8_t> out, run->out().Inside());
  ASSIGN_OR_RETURN(const std::vector<uint8_t> lse_bytes, run->lse().Inside());
  std::vector<float> lse(lse_bytes.size() / 4);
  std::memcpy(lse.data(), lse_bytes.data(), lse_bytes.size());
  const ErrorReport errors =
      CompareAttention(stored.problem, out, lse, /*padding_kept=*/true);
  if (errors.ok()) return absl::OkStatus();
  return absl::DataLossError(
      errors.out_ratio > 1 ? absl::StrCat("out is ", errors.out_ratio,
                                          " of its bound at ", errors.worst_out)
                           : errors.worst_lse);
}

}  // namespace kvforge::tune
