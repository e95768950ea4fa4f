#include "tools/case_on_target.h"

#include <algorithm>
#include <cstring>

#include "compiler/tile/memory_model.h"
#include "kernels/extend.h"
#include "kernels/store.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

// Ends at its guard page: an element too many faults on the host.
template <typename T>
absl::StatusOr<TargetBuffer> Copy(const Engine& engine,
                                  const std::vector<T>& values) {
  return TargetBuffer::FromHost(engine, values.data(),
                                values.size() * sizeof(T), sizeof(T));
}

// Token rows with `pad` bytes of poison behind each but the last.
absl::StatusOr<TargetBuffer> CopyRows(const Engine& engine,
                                      const std::vector<uint8_t>& rows,
                                      int64_t row_bytes, int64_t pad) {
  const int64_t count = static_cast<int64_t>(rows.size()) / row_bytes;
  if (count == 0) return TargetBuffer::Allocate(engine, 0);
  std::vector<uint8_t> padded(count * (row_bytes + pad) - pad, kPoison);
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(padded.data() + i * (row_bytes + pad),
                rows.data() + i * row_bytes, row_bytes);
  }
  return TargetBuffer::FromHost(engine, padded.data(), padded.size());
}

// The given scales that are arrays.
absl::StatusOr<TargetBuffer> CopyScales(const Engine& engine,
                                        const kvforge::CaseSide& side) {
  return Copy(engine, side.channel_scale.empty() ? side.head_scale
                                                 : side.channel_scale);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CaseOnTarget>> CaseOnTarget::Create(
    const Engine& engine, const AttentionCase& problem,
    const CaseLayout& layout) {
  std::unique_ptr<CaseOnTarget> on_target(
      new CaseOnTarget(engine, problem, layout));
  RETURN_IF_ERROR(on_target->Upload());
  return on_target;
}

int64_t CaseOnTarget::SourceRowBytes(const CaseSide& side) const {
  return int64_t{problem_.num_kv_heads} * side.head_dim *
         DTypeBytes(problem_.source_type);
}

int64_t CaseOnTarget::QueryRowBytes() const {
  return int64_t{problem_.num_q_heads} * problem_.k.head_dim *
         DTypeBytes(problem_.query_type);
}

absl::Status CaseOnTarget::Upload() {
  ASSIGN_OR_RETURN(cache_,
                   PagedCache::Create(engine_, GeometryOf(problem_, layout_),
                                      problem_.num_pages));
  ASSIGN_OR_RETURN(k_source_,
                   CopyRows(engine_, problem_.k.source,
                            SourceRowBytes(problem_.k), layout_.k_source_pad));
  ASSIGN_OR_RETURN(v_source_,
                   CopyRows(engine_, problem_.v.source,
                            SourceRowBytes(problem_.v), layout_.v_source_pad));
  ASSIGN_OR_RETURN(
      q_, CopyRows(engine_, problem_.q, QueryRowBytes(), layout_.q_pad));
  ASSIGN_OR_RETURN(slots_, Copy(engine_, problem_.slot_mapping));
  ASSIGN_OR_RETURN(page_table_, Copy(engine_, problem_.page_table));
  ASSIGN_OR_RETURN(kv_lens_, Copy(engine_, problem_.kv_lens));
  ASSIGN_OR_RETURN(q_indptr_, Copy(engine_, problem_.q_indptr));
  ASSIGN_OR_RETURN(sinks_, Copy(engine_, problem_.sinks));
  ASSIGN_OR_RETURN(alibi_slopes_, Copy(engine_, problem_.alibi_slopes));
  ASSIGN_OR_RETURN(custom_mask_, Copy(engine_, problem_.custom_mask));
  ASSIGN_OR_RETURN(mask_indptr_, Copy(engine_, problem_.mask_indptr));
  ASSIGN_OR_RETURN(selected_, Copy(engine_, problem_.selected));
  ASSIGN_OR_RETURN(k_scales_, CopyScales(engine_, problem_.k));
  ASSIGN_OR_RETURN(v_scales_, CopyScales(engine_, problem_.v));
  ASSIGN_OR_RETURN(
      out_, TargetBuffer::Allocate(
                engine_, problem_.out.size() * DTypeBytes(problem_.out_type)));
  ASSIGN_OR_RETURN(lse_,
                   TargetBuffer::Allocate(engine_, problem_.lse.size() * 4, 4));
  return absl::OkStatus();
}

SourceRows CaseOnTarget::Source(const TargetBuffer& buffer,
                                const CaseSide& side, int64_t pad) const {
  SourceRows rows = {};
  rows.base = buffer.as<const unsigned char>();
  rows.token_stride = SourceRowBytes(side) + pad;
  rows.head_stride = int64_t{side.head_dim} * DTypeBytes(problem_.source_type);
  return rows;
}

CacheView CaseOnTarget::View(CacheSide side) const {
  CacheView view = cache_.View(side);
  const bool key = side == CacheSide::kKey;
  const CaseSide& rows = key ? problem_.k : problem_.v;
  view.scale = rows.given_scale;
  if (!rows.head_scale.empty() || !rows.channel_scale.empty()) {
    view.scale_ptr = (key ? k_scales_ : v_scales_).as<const float>();
  }
  return view;
}

StoreArgs CaseOnTarget::StoreArguments() const {
  StoreArgs args = {};
  args.k_src = Source(k_source_, problem_.k, layout_.k_source_pad);
  args.v_src = Source(v_source_, problem_.v, layout_.v_source_pad);
  args.k = View(CacheSide::kKey);
  args.v = View(CacheSide::kValue);
  args.slots = slots_.as<long long>();
  args.num_slots = cache_.num_slots();
  args.num_tokens = static_cast<int>(problem_.tokens());
  args.num_kv_heads = problem_.num_kv_heads;
  return args;
}

AttentionArgs CaseOnTarget::AttentionArguments() const {
  AttentionArgs args = {};
  args.q = q_.as<const unsigned char>();
  args.q_token_stride = QueryRowBytes() + layout_.q_pad;
  args.q_head_stride =
      int64_t{problem_.k.head_dim} * DTypeBytes(problem_.query_type);
  args.out = out_.as<unsigned char>();
  args.out_head_stride =
      int64_t{problem_.v.head_dim} * DTypeBytes(problem_.out_type);
  args.out_token_stride = args.out_head_stride * problem_.num_q_heads;
  args.lse = lse_.as<float>();
  args.lse_token_stride = problem_.num_q_heads;
  args.q_indptr = q_indptr_.as<const int>();
  args.kv_lens = kv_lens_.as<const int>();
  args.page_table = page_table_.as<const int>();
  args.page_table_stride = problem_.page_table_width;
  args.k = View(CacheSide::kKey);
  args.v = View(CacheSide::kValue);
  args.sinks = sinks_.as<const float>();
  args.alibi_slopes = alibi_slopes_.as<const float>();
  args.custom_mask = custom_mask_.as<const unsigned char>();
  args.mask_indptr = mask_indptr_.as<const int>();
  args.selected = selected_.as<const int>();
  args.selected_per_head = problem_.selected_per_head;
  args.sm_scale = problem_.sm_scale;
  args.batch = problem_.batch();
  args.num_kv_heads = problem_.num_kv_heads;
  args.total_q = static_cast<int>(problem_.total_q());
  return args;
}

absl::Status CaseOnTarget::PoisonOutputs() {
  RETURN_IF_ERROR(out_.Fill(kPoison));
  return lse_.Fill(kPoison);
}

absl::Status CaseOnTarget::Store(const PreparedKernel& kernel,
                                 const StoreArgs& args) {
  RETURN_IF_ERROR(RunStore(kernel, args, nullptr));
  return SynchronizeTarget(engine_, nullptr);
}

absl::Status CaseOnTarget::Extend(const PreparedKernel& kernel,
                                  const AttentionArgs& args) {
  const int64_t kv_tokens = KvTokens();
  return ExtendIn(
      ExtendWorkspaceBytes(kernel, {args.batch, args.num_kv_heads, kv_tokens}),
      kv_tokens, kernel, args);
}

absl::Status CaseOnTarget::ExtendInPasses(const PreparedKernel& kernel,
                                          const AttentionArgs& args) {
  const auto bytes_of = [&](int64_t tiles) {
    return ExtendWorkspaceBytes(
        kernel, {0, args.num_kv_heads, tiles * kernel.tile().block_n});
  };
  constexpr int64_t kManyTokens = int64_t{1} << 36;
  ExtendSizes sizes = {args.batch, args.num_kv_heads, kManyTokens};
  sizes.kv_tokens_per_pass = kernel.tile().block_n;
  sizes.total_q = args.total_q;
  const int64_t bytes = ExtendWorkspaceBytes(kernel, sizes);
  // More than would fit at once in place of what passes hand on.
  const int64_t tiles = bytes / (bytes_of(2) - bytes_of(1)) + 1;
  return ExtendIn(bytes, std::max(KvTokens(), tiles * kernel.tile().block_n),
                  kernel, args);
}

absl::Status CaseOnTarget::ExtendIn(int64_t workspace_bytes, int64_t kv_tokens,
                                    const PreparedKernel& kernel,
                                    const AttentionArgs& args) {
  RETURN_IF_ERROR(PoisonOutputs());
  ExtendParams params = {args, problem_.num_q_heads};
  params.kv_tokens = kv_tokens;
  params.workspace_bytes = workspace_bytes;
  ASSIGN_OR_RETURN(
      const TargetBuffer workspace,
      TargetBuffer::Allocate(engine_, params.workspace_bytes, 128));
  params.workspace = workspace.data();
  RETURN_IF_ERROR(RunExtend(kernel, params, nullptr));
  return SynchronizeTarget(engine_, nullptr);
}

int64_t CaseOnTarget::KvTokens() const {
  int64_t tokens = 0;
  for (const int kv_len : problem_.kv_lens) tokens += kv_len;
  return tokens;
}

DecodeGrid CaseOnTarget::CutGrid(const PreparedKernel& kernel,
                                 const AttentionArgs& args, int cuts) const {
  DecodeGrid grid;
  if (cuts == 1) return grid;
  // Heads side by side in a block for odd numbers of cuts.
  int heads =
      cuts % 2 != 0 ? DecodeHeadsPerBlock(kernel.spec(), kernel.tile()) : 1;
  while (args.num_kv_heads % heads != 0) heads /= 2;
  grid.heads_per_block = heads;
  int64_t row_tiles = 0;
  for (size_t i = 1; i < problem_.q_indptr.size(); ++i) {
    const int64_t q_len = problem_.q_indptr[i] - problem_.q_indptr[i - 1];
    row_tiles += (q_len * kernel.spec().group + kernel.tile().block_m - 1) /
                 kernel.tile().block_m;
  }
  grid.blocks = static_cast<int>(
      std::max<int64_t>(1, row_tiles * (args.num_kv_heads / heads) * cuts));
  return grid;
}

absl::Status CaseOnTarget::QueueDecode(const PreparedKernel& kernel,
                                       const AttentionArgs& args,
                                       const DecodeGrid& grid, void* stream) {
  DecodeParams params;
  params.args = args;
  params.num_q_heads = problem_.num_q_heads;
  params.grid = grid;
  params.workspace_bytes = DecodeWorkspaceBytes(kernel, grid);
  if (workspace_.bytes() < static_cast<size_t>(params.workspace_bytes)) {
    ASSIGN_OR_RETURN(workspace_,
                     TargetBuffer::Allocate(engine_, params.workspace_bytes));
    RETURN_IF_ERROR(workspace_.Fill(kPoison));
    const std::vector<unsigned> counters(grid.blocks);
    RETURN_IF_ERROR(workspace_.CopyFromHost(
        counters.data(), counters.size() * sizeof(unsigned)));
  }
  params.workspace = workspace_.data();
  return RunDecode(kernel, params, stream);
}

absl::Status CaseOnTarget::Decode(const PreparedKernel& kernel,
                                  const AttentionArgs& args, int cuts) {
  return Decode(kernel, args, CutGrid(kernel, args, cuts));
}

absl::Status CaseOnTarget::Decode(const PreparedKernel& kernel,
                                  const AttentionArgs& args,
                                  const DecodeGrid& grid) {
  RETURN_IF_ERROR(PoisonOutputs());
  // Of its exact size: an access past its end faults on the host.
  workspace_ = TargetBuffer();
  RETURN_IF_ERROR(QueueDecode(kernel, args, grid, nullptr));
  RETURN_IF_ERROR(SynchronizeTarget(engine_, nullptr));
  if (workspace_.bytes() == 0) return absl::OkStatus();
  std::vector<unsigned> counters(grid.blocks);
  RETURN_IF_ERROR(workspace_.CopyToHost(counters.data(),
                                        counters.size() * sizeof(unsigned)));
  if (std::any_of(counters.begin(), counters.end(),
                  [](unsigned counter) { return counter != 0; })) {
    return absl::InternalError("decode left a counter that is not 0");
  }
  return absl::OkStatus();
}

absl::Status CaseOnTarget::CheckStored() const {
  return cache_.CheckStored(problem_.k, problem_.v, problem_.slot_mapping);
}

absl::StatusOr<std::vector<uint8_t>> CaseOnTarget::Out() const {
  std::vector<uint8_t> out(out_.bytes());
  RETURN_IF_ERROR(out_.CopyToHost(out.data(), out.size()));
  return out;
}

absl::StatusOr<std::vector<float>> CaseOnTarget::Lse() const {
  std::vector<float> lse(lse_.bytes() / 4);
  RETURN_IF_ERROR(lse_.CopyToHost(lse.data(), lse_.bytes()));
  return lse;
}

absl::StatusOr<ErrorReport> CaseOnTarget::Compare(bool padding_kept) const {
  ASSIGN_OR_RETURN(const std::vector<uint8_t> out, Out());
  ASSIGN_OR_RETURN(const std::vector<float> lse, Lse());
  return CompareAttention(problem_, out, lse, padding_kept);
}

}  // namespace kvforge
