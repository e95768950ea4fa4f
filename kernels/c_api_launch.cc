// c_api.h: decode's grid and launches. Structs are copied
// field by field into ours, which may change without the ABI.
#include <cstdint>
#include <utility>

#include "compiler/tile/memory_model.h"
#include "kernels/c_api.h"
#include "kernels/c_api_boundary.h"
#include "kernels/decode.h"
#include "kernels/extend.h"
#include "kernels/gather.h"
#include "kernels/merge.h"
#include "kernels/store.h"
#include "runtime/base/status_macros.h"

namespace kvforge::c_api {
namespace {

static_assert(KVFORGE_MAX_DECODE_BLOCKS == kMaxDecodeBlocks);
static_assert(sizeof(int) == sizeof(int32_t));
static_assert(sizeof(long long) == sizeof(int64_t));

absl::Status CheckReserved(absl::string_view call, absl::string_view name,
                           uint32_t value) {
  if (value == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(call, ": ", name, ".reserved = ", value,
                   "; 0 is supported; clear the struct before it is filled "
                   "in"));
}

StridedBytes FromC(const kvforge_strided_rows& c) {
  StridedBytes rows = {};
  rows.base = static_cast<unsigned char*>(c.base);
  rows.page_stride = c.page_stride;
  rows.slot_stride = c.slot_stride;
  rows.head_stride = c.head_stride;
  return rows;
}

absl::Status ReadView(absl::string_view call, absl::string_view name,
                      const kvforge_cache_view* from, CacheView& view) {
  kvforge_cache_view c;
  RETURN_IF_ERROR(ReadStruct(call, name, from, c));
  RETURN_IF_ERROR(CheckReserved(call, name, c.reserved));
  view.codes = FromC(c.codes);
  view.row_scale = FromC(c.row_scales);
  view.block_scale = FromC(c.block_scales);
  view.scale_ptr = c.scale_ptr;
  view.scale = c.scale;
  return absl::OkStatus();
}

absl::Status CheckKernel(absl::string_view call, const kvforge_kernel* kernel) {
  return CheckNotNull(call, "kernel", kernel, "a kernel of kvforge_prepare");
}

absl::Status CheckDecodeKernel(absl::string_view call,
                               const kvforge_kernel* kernel) {
  RETURN_IF_ERROR(CheckKernel(call, kernel));
  if (kernel->prepared->spec().kernel == KernelKind::kDecode) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(call, ": the kernel is ", kernel->spec,
                   "; decode kernels are supported; prepare a decode spec"));
}

absl::Status ChooseGrid(const kvforge_engine* engine,
                        const kvforge_kernel* decode, int32_t batch,
                        int32_t num_kv_heads, kvforge_decode_grid* grid) {
  constexpr char kCall[] = "kvforge_choose_decode_grid";
  RETURN_IF_ERROR(CheckNotNull(kCall, "grid", grid, "where it goes"));
  RETURN_IF_ERROR(CheckNotNull(kCall, "engine", engine, "an engine"));
  RETURN_IF_ERROR(CheckDecodeKernel(kCall, decode));
  if (batch < 0 || num_kv_heads < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        kCall, ": batch = ", batch, ", num_kv_heads = ", num_kv_heads,
        "; a batch of 0 or more and 1 or more heads are supported; pass the "
        "sizes that launches will have"));
  }
  const DecodeGrid chosen = ChooseDecodeGrid(*engine->engine, *decode->prepared,
                                             {batch, num_kv_heads});
  *grid = {chosen.blocks, chosen.heads_per_block};
  return absl::OkStatus();
}

absl::Status WorkspaceBytes(const kvforge_kernel* decode,
                            const kvforge_decode_grid* grid, int64_t* bytes) {
  constexpr char kCall[] = "kvforge_decode_workspace_bytes";
  RETURN_IF_ERROR(CheckNotNull(kCall, "bytes", bytes, "where it goes"));
  RETURN_IF_ERROR(CheckDecodeKernel(kCall, decode));
  RETURN_IF_ERROR(CheckNotNull(kCall, "grid", grid, "a grid"));
  const PreparedKernel& kernel = *decode->prepared;
  const int most = DecodeHeadsPerBlock(kernel.spec(), kernel.tile());
  if (grid->blocks < 1 || grid->blocks > kMaxDecodeBlocks ||
      grid->heads_per_block < 1 || grid->heads_per_block > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(kCall, ": grid.blocks = ", grid->blocks,
                     ", grid.heads_per_block = ", grid->heads_per_block,
                     "; 1 to ", kMaxDecodeBlocks, " blocks of 1 to ", most,
                     " kv heads are supported; take the grid from "
                     "kvforge_choose_decode_grid"));
  }
  *bytes = DecodeWorkspaceBytes(kernel, {grid->blocks, grid->heads_per_block});
  return absl::OkStatus();
}

absl::StatusOr<ExtendSizes> ReadSizes(absl::string_view call,
                                      const kvforge_extend_sizes* from) {
  kvforge_extend_sizes c;
  RETURN_IF_ERROR(ReadStruct(call, "sizes", from, c));
  constexpr int64_t kMostTokens = int64_t{1} << 40;
  const bool counts = c.batch >= 0 && c.num_kv_heads >= 0 && c.total_q >= 0;
  const bool tokens = c.kv_tokens >= 0 && c.kv_tokens <= kMostTokens &&
                      c.kv_tokens_per_pass >= 0 &&
                      c.kv_tokens_per_pass <= kMostTokens;
  if (!counts || !tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        call, ": sizes.batch = ", c.batch, ", num_kv_heads = ", c.num_kv_heads,
        ", total_q = ", c.total_q, ", kv_tokens = ", c.kv_tokens,
        ", kv_tokens_per_pass = ", c.kv_tokens_per_pass,
        "; none may be below 0, and the tokens at most ", kMostTokens,
        "; pass the sizes that launches will have"));
  }
  ExtendSizes sizes;
  sizes.batch = c.batch;
  sizes.num_kv_heads = c.num_kv_heads;
  sizes.kv_tokens = c.kv_tokens;
  sizes.kv_tokens_per_pass = c.kv_tokens_per_pass;
  sizes.total_q = c.total_q;
  return sizes;
}

absl::Status ExtendBytes(const kvforge_kernel* extend,
                         const kvforge_extend_sizes* from, int64_t* bytes) {
  constexpr char kCall[] = "kvforge_extend_workspace_bytes";
  RETURN_IF_ERROR(CheckNotNull(kCall, "bytes", bytes, "where it goes"));
  RETURN_IF_ERROR(CheckKernel(kCall, extend));
  ASSIGN_OR_RETURN(const ExtendSizes sizes, ReadSizes(kCall, from));
  *bytes = ExtendWorkspaceBytes(*extend->prepared, sizes);
  return absl::OkStatus();
}

absl::Status Choose(const kvforge_engine* engine, const char* spec,
                    const kvforge_extend_sizes* from, int64_t granted_bytes,
                    int32_t* on_images, int64_t* workspace_bytes) {
  constexpr char kCall[] = "kvforge_choose_extend";
  RETURN_IF_ERROR(CheckNotNull(kCall, "engine", engine, "an engine"));
  RETURN_IF_ERROR(CheckNotNull(kCall, "spec", spec, "a SPEC"));
  RETURN_IF_ERROR(CheckNotNull(kCall, "on_images", on_images, "where it goes"));
  RETURN_IF_ERROR(
      CheckNotNull(kCall, "workspace_bytes", workspace_bytes, "where it goes"));
  ASSIGN_OR_RETURN(const KernelSpec parsed, ParseSpec(spec));
  if (parsed.kernel != KernelKind::kExtend) {
    return absl::InvalidArgumentError(
        absl::StrCat(kCall, ": the SPEC is ", parsed.Text(),
                     "; extend is supported; pass an extend spec"));
  }
  ASSIGN_OR_RETURN(const ExtendSizes sizes, ReadSizes(kCall, from));
  const ExtendPlan plan =
      ChooseExtend(*engine->engine, parsed, sizes, granted_bytes);
  *on_images = plan.images.has_value();
  *workspace_bytes = plan.workspace_bytes;
  return absl::OkStatus();
}

absl::StatusOr<StoreArgs> ReadStore(absl::string_view call,
                                    const kvforge_store_args* from) {
  kvforge_store_args c;
  RETURN_IF_ERROR(ReadStruct(call, "args", from, c));
  StoreArgs args = {};
  for (auto [rows, given] :
       {std::pair{&args.k_src, &c.k_src}, std::pair{&args.v_src, &c.v_src}}) {
    rows->base = static_cast<const unsigned char*>(given->base);
    rows->token_stride = given->token_stride;
    rows->head_stride = given->head_stride;
  }
  RETURN_IF_ERROR(ReadView(call, "args.k", c.k, args.k));
  RETURN_IF_ERROR(ReadView(call, "args.v", c.v, args.v));
  args.slots = reinterpret_cast<const long long*>(c.slots);
  args.num_slots = c.num_slots;
  args.num_tokens = c.num_tokens;
  args.num_kv_heads = c.num_kv_heads;
  return args;
}

absl::StatusOr<ExtendParams> ReadAttention(absl::string_view call,
                                           const kvforge_attention_args* from) {
  kvforge_attention_args c;
  RETURN_IF_ERROR(ReadStruct(call, "args", from, c));
  ExtendParams params;
  params.num_q_heads = c.num_q_heads;
  AttentionArgs& args = params.args;
  args.q = static_cast<const unsigned char*>(c.q);
  args.q_token_stride = c.q_token_stride;
  args.q_head_stride = c.q_head_stride;
  args.out = static_cast<unsigned char*>(c.out);
  args.out_token_stride = c.out_token_stride;
  args.out_head_stride = c.out_head_stride;
  args.lse = c.lse;
  args.lse_token_stride = c.lse_token_stride;
  args.q_indptr = c.q_indptr;
  args.kv_lens = c.kv_lens;
  args.page_table = c.page_table;
  args.page_table_stride = c.page_table_stride;
  RETURN_IF_ERROR(ReadView(call, "args.k", c.k, args.k));
  RETURN_IF_ERROR(ReadView(call, "args.v", c.v, args.v));
  args.sinks = c.sinks;
  args.alibi_slopes = c.alibi_slopes;
  args.custom_mask = c.custom_mask;
  args.mask_indptr = c.mask_indptr;
  args.selected = c.selected;
  args.selected_per_head = c.selected_per_head;
  args.sm_scale = c.sm_scale;
  args.batch = c.batch;
  args.total_q = c.total_q;
  args.num_kv_heads = c.num_kv_heads;
  params.workspace = c.workspace;
  params.workspace_bytes = c.workspace_bytes;
  params.kv_tokens = c.kv_tokens;
  return params;
}

absl::StatusOr<MergeArgs> ReadMerge(absl::string_view call,
                                    const kvforge_merge_args* from) {
  kvforge_merge_args c;
  RETURN_IF_ERROR(ReadStruct(call, "args", from, c));
  RETURN_IF_ERROR(CheckReserved(call, "args", c.reserved));
  MergeArgs args = {};
  args.partial_out = c.partial_out;
  args.partial_lse = c.partial_lse;
  args.out = static_cast<unsigned char*>(c.out);
  args.out_row_stride = c.out_row_stride;
  args.out_head_stride = c.out_head_stride;
  args.lse = c.lse;
  args.lse_row_stride = c.lse_row_stride;
  args.splits = c.splits;
  args.rows = c.rows;
  args.heads = c.heads;
  return args;
}

absl::StatusOr<GatherArgs> ReadGather(absl::string_view call,
                                      const kvforge_gather_args* from) {
  kvforge_gather_args c;
  RETURN_IF_ERROR(ReadStruct(call, "args", from, c));
  GatherArgs args = {};
  for (auto [rows, given] :
       {std::pair{&args.k_out, &c.k_out}, std::pair{&args.v_out, &c.v_out}}) {
    rows->base = static_cast<unsigned char*>(given->base);
    rows->token_stride = given->token_stride;
    rows->head_stride = given->head_stride;
  }
  RETURN_IF_ERROR(ReadView(call, "args.k", c.k, args.k));
  RETURN_IF_ERROR(ReadView(call, "args.v", c.v, args.v));
  args.slots = reinterpret_cast<const long long*>(c.slots);
  args.num_slots = c.num_slots;
  args.num_rows = c.num_rows;
  args.num_kv_heads = c.num_kv_heads;
  return args;
}

absl::Status Store(const kvforge_kernel* kernel, const kvforge_store_args* from,
                   void* stream) {
  constexpr char kCall[] = "kvforge_run_store";
  RETURN_IF_ERROR(CheckKernel(kCall, kernel));
  ASSIGN_OR_RETURN(const StoreArgs args, ReadStore(kCall, from));
  return RunStore(*kernel->prepared, args, stream);
}

absl::Status Extend(const kvforge_kernel* kernel,
                    const kvforge_attention_args* from, void* stream) {
  constexpr char kCall[] = "kvforge_run_extend";
  RETURN_IF_ERROR(CheckKernel(kCall, kernel));
  ASSIGN_OR_RETURN(const ExtendParams args, ReadAttention(kCall, from));
  return RunExtend(*kernel->prepared, args, stream);
}

absl::Status Decode(const kvforge_kernel* kernel,
                    const kvforge_attention_args* from,
                    const kvforge_decode_launch* launch, void* stream) {
  constexpr char kCall[] = "kvforge_run_decode";
  RETURN_IF_ERROR(CheckKernel(kCall, kernel));
  ASSIGN_OR_RETURN(const ExtendParams read, ReadAttention(kCall, from));
  kvforge_decode_launch c;
  RETURN_IF_ERROR(ReadStruct(kCall, "launch", launch, c));
  DecodeParams params;
  params.args = read.args;
  params.num_q_heads = read.num_q_heads;
  params.grid = {c.grid.blocks, c.grid.heads_per_block};
  params.workspace = c.workspace;
  params.workspace_bytes = c.workspace_bytes;
  return RunDecode(*kernel->prepared, params, stream);
}

absl::Status Merge(const kvforge_kernel* kernel, const kvforge_merge_args* from,
                   void* stream) {
  constexpr char kCall[] = "kvforge_run_merge";
  RETURN_IF_ERROR(CheckKernel(kCall, kernel));
  ASSIGN_OR_RETURN(const MergeArgs args, ReadMerge(kCall, from));
  return RunMerge(*kernel->prepared, args, stream);
}

absl::Status Gather(const kvforge_kernel* kernel,
                    const kvforge_gather_args* from, void* stream) {
  constexpr char kCall[] = "kvforge_run_gather";
  RETURN_IF_ERROR(CheckKernel(kCall, kernel));
  ASSIGN_OR_RETURN(const GatherArgs args, ReadGather(kCall, from));
  return RunGather(*kernel->prepared, args, stream);
}

}  // namespace
}  // namespace kvforge::c_api

namespace api = kvforge::c_api;

int kvforge_choose_decode_grid(const kvforge_engine* engine,
                               const kvforge_kernel* decode, int32_t batch,
                               int32_t num_kv_heads,
                               kvforge_decode_grid* grid) {
  return api::Guarded([&] {
    return api::ChooseGrid(engine, decode, batch, num_kv_heads, grid);
  });
}

int kvforge_decode_workspace_bytes(const kvforge_kernel* decode,
                                   const kvforge_decode_grid* grid,
                                   int64_t* bytes) {
  return api::Guarded([&] { return api::WorkspaceBytes(decode, grid, bytes); });
}

int kvforge_extend_workspace_bytes(const kvforge_kernel* extend,
                                   const kvforge_extend_sizes* sizes,
                                   int64_t* bytes) {
  return api::Guarded([&] { return api::ExtendBytes(extend, sizes, bytes); });
}

int kvforge_choose_extend(const kvforge_engine* engine, const char* spec,
                          const kvforge_extend_sizes* sizes,
                          int64_t granted_bytes, int32_t* on_images,
                          int64_t* workspace_bytes) {
  return api::Guarded([&] {
    return api::Choose(engine, spec, sizes, granted_bytes, on_images,
                       workspace_bytes);
  });
}

int kvforge_run_store(const kvforge_kernel* kernel,
                      const kvforge_store_args* args, void* stream) {
  return api::Guarded([&] { return api::Store(kernel, args, stream); });
}

int kvforge_run_extend(const kvforge_kernel* kernel,
                       const kvforge_attention_args* args, void* stream) {
  return api::Guarded([&] { return api::Extend(kernel, args, stream); });
}

int kvforge_run_decode(const kvforge_kernel* kernel,
                       const kvforge_attention_args* args,
                       const kvforge_decode_launch* launch, void* stream) {
  return api::Guarded(
      [&] { return api::Decode(kernel, args, launch, stream); });
}

int kvforge_run_merge(const kvforge_kernel* kernel,
                      const kvforge_merge_args* args, void* stream) {
  return api::Guarded([&] { return api::Merge(kernel, args, stream); });
}

int kvforge_run_gather(const kvforge_kernel* kernel,
                       const kvforge_gather_args* args, void* stream) {
  return api::Guarded([&] { return api::Gather(kernel, args, stream); });
}
