#include "tools/tune/attention_run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/extend.h"
#include "runtime/base/status_macros.h"

namespace kvforge::tune {
namespace {

constexpr uint8_t kPoisonByte = 0xFF;  // NaN in every type

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionRun>> AttentionRun::Create(
    const Engine& engine, const PreparedKernel& kernel,
    const CandidateParts& parts, const AttentionArgs& args) {
  std::unique_ptr<AttentionRun> run(new AttentionRun(engine, kernel));
  const int64_t rows =
      int64_t{args.total_q} * args.num_kv_heads * kernel.spec().group;
  ASSIGN_OR_RETURN(run->out_,
                   RedZonedBuffer::Allocate(engine, "out",
                                            rows * kernel.spec().v_head_dim *
                                                DTypeBytes(kernel.spec().out)));
  ASSIGN_OR_RETURN(run->lse_,
                   RedZonedBuffer::Allocate(engine, "lse", rows * 4));
  if (kernel.spec().kernel != KernelKind::kDecode) return run;
  if (parts.blocks > 0) {
    run->grid_ = {parts.blocks, parts.heads_per_block};
  } else {
    DecodeSizes sizes;
    sizes.batch = args.batch;
    sizes.num_kv_heads = args.num_kv_heads;
    run->grid_ = ChooseDecodeGrid(engine, kernel, sizes);
  }
  ASSIGN_OR_RETURN(
      run->workspace_,
      RedZonedBuffer::Allocate(engine, "workspace",
                               DecodeWorkspaceBytes(kernel, run->grid_)));
  RETURN_IF_ERROR(run->workspace_.Reset(kPoisonByte));
  // Its counters.
  RETURN_IF_ERROR(run->workspace_.Write(std::vector<uint8_t>(
      std::min<size_t>(run->workspace_.bytes(), 4 * run->grid_.blocks))));
  return run;
}

absl::Status AttentionRun::Queue(const AttentionArgs& inputs,
                                 void* stream) const {
  const KernelSpec& spec = kernel_.spec();
  AttentionArgs args = inputs;
  const int num_q_heads = args.num_kv_heads * spec.group;
  args.out = out_.as<unsigned char>();
  args.out_head_stride = int64_t{spec.v_head_dim} * DTypeBytes(spec.out);
  args.out_token_stride = args.out_head_stride * num_q_heads;
  args.lse = lse_.as<float>();
  args.lse_token_stride = num_q_heads;
  if (spec.kernel == KernelKind::kExtend) {
    return RunExtend(kernel_, {args, num_q_heads}, stream);
  }
  DecodeParams params;
  params.args = args;
  params.num_q_heads = num_q_heads;
  params.grid = grid_;
  params.workspace = workspace_.as<void>();
  params.workspace_bytes = static_cast<int64_t>(workspace_.bytes());
  return RunDecode(kernel_, params, stream);
}

absl::Status AttentionRun::RunOnce(const AttentionArgs& args) {
  RETURN_IF_ERROR(out_.Reset(kPoisonByte));
  RETURN_IF_ERROR(lse_.Reset(kPoisonByte));
  RETURN_IF_ERROR(Queue(args, nullptr));
  RETURN_IF_ERROR(SynchronizeTarget(engine_, nullptr));
  RETURN_IF_ERROR(out_.CheckZones());
  RETURN_IF_ERROR(lse_.CheckZones());
  if (workspace_.bytes() == 0) return absl::OkStatus();
  RETURN_IF_ERROR(workspace_.CheckZones());
  ASSIGN_OR_RETURN(const std::vector<uint8_t> workspace, workspace_.Inside());
  if (std::any_of(workspace.begin(), workspace.begin() + 4 * grid_.blocks,
                  [](uint8_t byte) { return byte != 0; })) {
    return absl::DataLossError("a counter in the workspace is not 0");
  }
  return absl::OkStatus();
}

}  // namespace kvforge::tune
