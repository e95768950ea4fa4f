#include "kernels/decode.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/argument_checks.h"
#include "kernels/attention.h"
#include "kernels/merge.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

// A split shorter than this costs more in its merge than it gains.
constexpr int64_t kMinSplitTokens = 256;
constexpr int64_t kWorkspaceAlignment = 16;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t RowTiles(const PreparedKernel& decode) {
  const KernelSpec& spec = decode.spec();
  return CeilDiv(int64_t{spec.q_max} * spec.group, decode.tile().block_m);
}

// Blocks of a kernel that one multiprocessor holds at once.
int64_t BlocksPerMultiprocessor(const GpuTarget& gpu, const LaunchFacts& facts,
                                const Tile& tile) {
  const int64_t shared = facts.dynamic_shared_bytes +
                         facts.static_shared_bytes + gpu.shared_bytes_reserved;
  int64_t blocks = gpu.warps_per_sm / std::max(1, tile.warps);
  if (shared > 0) blocks = std::min(blocks, gpu.shared_bytes_per_sm / shared);
  if (facts.registers > 0) {
    // Registers are given out to warps in units of 8 a thread.
    const int64_t block_registers =
        CeilDiv(facts.registers, 8) * 8 * 32 * tile.warps;
    blocks = std::min(blocks, gpu.registers_per_sm / block_registers);
  }
  return std::max<int64_t>(1, blocks);
}

// The rows of partial_out, rounded so that partial_lse behind it is aligned.
int64_t PartialOutBytes(const KernelSpec& spec, int64_t total_q,
                        int num_q_heads, int splits) {
  const int64_t bytes =
      int64_t{splits} * total_q * num_q_heads * spec.v_head_dim * 4;
  return CeilDiv(bytes, kWorkspaceAlignment) * kWorkspaceAlignment;
}

absl::Status CheckSplits(const DecodeKernels& kernels,
                         const DecodeParams& params) {
  if (params.splits < 1 || params.splits > kMaxSplits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "decode: splits = ", params.splits, " is out of range; 1 to ",
        kMaxSplits, " are supported; take it from ChooseSplits"));
  }
  if (params.splits == 1) return absl::OkStatus();
  const KernelSpec& spec = kernels.decode->spec();
  const KernelSpec merge = MergeSpecOf(spec);
  if (kernels.merge == nullptr || !(kernels.merge->spec() == merge)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "decode: ", params.splits, " splits with ",
        kernels.merge == nullptr ? "no merge kernel"
                                 : kernels.merge->spec().Text(),
        "; ", spec.Text(), " needs ", merge.Text(), "; use PrepareDecode"));
  }
  RETURN_IF_ERROR(CheckPointer("decode", "workspace", params.workspace,
                               kWorkspaceAlignment, "scratch of the splits"));
  const int64_t needed = DecodeWorkspaceBytes(
      spec, params.args.total_q, params.num_q_heads, params.splits);
  if (params.workspace_bytes < needed) {
    return absl::InvalidArgumentError(absl::StrCat(
        "decode: the workspace has ", params.workspace_bytes, " bytes; ",
        params.splits, " splits of ", params.args.total_q, " tokens need ",
        needed, "; allocate DecodeWorkspaceBytes, or use fewer splits"));
  }
  return absl::OkStatus();
}

}  // namespace

KernelSpec MergeSpecOf(const KernelSpec& decode) {
  KernelSpec merge;
  merge.kernel = KernelKind::kMerge;
  merge.head_dim = decode.v_head_dim;
  merge.v_head_dim = decode.v_head_dim;
  merge.type = decode.out;
  merge.out = decode.out;
  return merge;
}

absl::StatusOr<DecodeKernels> PrepareDecode(Engine& engine,
                                            const KernelSpec& spec) {
  DecodeKernels kernels;
  ASSIGN_OR_RETURN(kernels.decode, engine.Prepare(spec));
  ASSIGN_OR_RETURN(kernels.merge, engine.Prepare(MergeSpecOf(spec)));
  return kernels;
}

int ChooseSplits(const Engine& engine, const PreparedKernel& decode,
                 const DecodeSizes& sizes) {
  int64_t longest = sizes.max_kv_len;
  int64_t total_tokens = sizes.total_kv_len > 0
                             ? sizes.total_kv_len
                             : sizes.batch * sizes.max_kv_len;
  if (const int64_t block = decode.spec().sparse_block; block > 0) {
    const int64_t selected = sizes.selected_per_head * block;
    longest = std::min(longest, selected);
    total_tokens = std::min(total_tokens, sizes.batch * selected);
  }
  if (sizes.batch <= 0 || sizes.num_kv_heads <= 0 || longest <= 0) return 1;
  const int64_t resident =
      engine.multiprocessors() *
      BlocksPerMultiprocessor(engine.gpu(), decode.facts(), decode.tile());
  // Tokens of one split, so that all splits together are about as many blocks
  // as the GPU holds at once.
  const int64_t split_tokens = std::max(
      kMinSplitTokens,
      CeilDiv(total_tokens * sizes.num_kv_heads * RowTiles(decode), resident));
  return static_cast<int>(
      std::clamp<int64_t>(CeilDiv(longest, split_tokens), 1, kMaxSplits));
}

int64_t DecodeWorkspaceBytes(const KernelSpec& spec, int64_t total_q,
                             int num_q_heads, int splits) {
  if (splits <= 1) return 0;
  int64_t bytes = int64_t{4} * (spec.v_head_dim + 1) * splits;
  if (__builtin_mul_overflow(bytes, total_q, &bytes) ||
      __builtin_mul_overflow(bytes, num_q_heads, &bytes)) {
    return std::numeric_limits<int64_t>::max();
  }
  return PartialOutBytes(spec, total_q, num_q_heads, splits) +
         int64_t{splits} * total_q * num_q_heads * 4;
}

absl::Status RunDecode(const DecodeKernels& kernels, const DecodeParams& params,
                       void* stream) {
  if (kernels.decode == nullptr ||
      kernels.decode->spec().kernel != KernelKind::kDecode) {
    return absl::InvalidArgumentError(absl::StrCat(
        "decode: the kernel is ",
        kernels.decode == nullptr ? "null" : kernels.decode->spec().Text(),
        "; RunDecode runs decode kernels; use PrepareDecode"));
  }
  const KernelSpec& spec = kernels.decode->spec();
  AttentionArgs args = params.args;
  RETURN_IF_ERROR(CheckAttentionCounts(spec, params.num_q_heads, args));
  if (args.batch == 0 || args.total_q == 0) return absl::OkStatus();
  RETURN_IF_ERROR(
      CheckAttention(spec, params.num_q_heads, /*needs_out=*/true, args));
  RETURN_IF_ERROR(CheckSplits(kernels, params));
  args.splits = params.splits;
  args.partial_out = nullptr;
  args.partial_lse = nullptr;
  if (params.splits > 1) {
    char* workspace = static_cast<char*>(params.workspace);
    args.partial_out = reinterpret_cast<float*>(workspace);
    args.partial_lse = reinterpret_cast<float*>(
        workspace +
        PartialOutBytes(spec, args.total_q, params.num_q_heads, params.splits));
  }
  const int64_t blocks = int64_t{args.batch} * args.num_kv_heads *
                         RowTiles(*kernels.decode) * args.splits;
  RETURN_IF_ERROR(CheckGrid("decode", blocks));
  RETURN_IF_ERROR(kernels.decode->Launch(blocks, &args, sizeof(args), stream));
  if (args.splits == 1) return absl::OkStatus();
  MergeArgs merge = {};
  merge.partial_out = args.partial_out;
  merge.partial_lse = args.partial_lse;
  merge.out = args.out;
  merge.out_row_stride = args.out_token_stride;
  merge.out_head_stride = args.out_head_stride;
  merge.lse = args.lse;
  merge.lse_row_stride = args.lse_token_stride;
  merge.splits = args.splits;
  merge.rows = args.total_q;
  merge.heads = params.num_q_heads;
  return RunMerge(*kernels.merge, merge, stream);
}

}  // namespace kvforge
