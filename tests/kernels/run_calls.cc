#include "tests/kernels/run_calls.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "kernels/cache_geometry.h"
#include "kernels/decode.h"
#include "kernels/extend.h"
#include "kernels/gather.h"
#include "kernels/merge.h"
#include "kernels/store.h"

namespace kvforge {
namespace {

constexpr int kKvHeads = 8;
constexpr int kTokens = 64;
constexpr int kPages = 1024;

template <typename T>
T OrExit(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  std::exit(1);
}

// The `index`-th of many buffers that are 2^40 bytes apart.
template <typename T>
T* Address(int index) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(index + 1) << 40);
}

CacheView View(const KernelSpec& spec, CacheSide side) {
  CacheGeometry geometry;
  geometry.k_format = spec.k_format;
  geometry.v_format = spec.v_format;
  geometry.head_dim = spec.head_dim;
  geometry.v_head_dim = spec.v_head_dim;
  geometry.num_kv_heads = kKvHeads;
  geometry.page_size = spec.page_size;
  geometry.order = spec.order;
  const int first = side == CacheSide::kKey ? 0 : 4;
  CacheView view =
      MakeCacheView(geometry, side, Address<void>(first),
                    Address<void>(first + 1), Address<void>(first + 2));
  view.scale = 1;
  const KvFormat& format =
      side == CacheSide::kKey ? *spec.k_format : *spec.v_format;
  if (format.given_scale == GivenScale::kHead ||
      format.given_scale == GivenScale::kChannel) {
    view.scale_ptr = Address<const float>(first + 3);
  }
  return view;
}

StoreArgs Stored(const KernelSpec& spec) {
  StoreArgs args = {};
  const int64_t bytes = DTypeBytes(spec.type);
  args.k_src = {Address<const unsigned char>(8),
                kKvHeads * spec.head_dim * bytes, spec.head_dim * bytes, 0};
  args.v_src = {Address<const unsigned char>(9),
                kKvHeads * spec.v_head_dim * bytes, spec.v_head_dim * bytes, 0};
  args.k = View(spec, CacheSide::kKey);
  args.v = View(spec, CacheSide::kValue);
  args.slots = Address<const long long>(10);
  args.num_slots = int64_t{kPages} * spec.page_size;
  args.num_tokens = kTokens;
  args.num_kv_heads = kKvHeads;
  return args;
}

GatherArgs Gathered(const KernelSpec& spec) {
  GatherArgs args = {};
  const int64_t bytes = DTypeBytes(spec.type);
  args.k_out = {Address<unsigned char>(8), kKvHeads * spec.head_dim * bytes,
                spec.head_dim * bytes};
  args.v_out = {Address<unsigned char>(9), kKvHeads * spec.v_head_dim * bytes,
                spec.v_head_dim * bytes};
  args.k = View(spec, CacheSide::kKey);
  args.v = View(spec, CacheSide::kValue);
  args.slots = Address<const long long>(10);
  args.num_slots = int64_t{kPages} * spec.page_size;
  args.num_rows = kTokens;
  args.num_kv_heads = kKvHeads;
  return args;
}

MergeArgs Merged(const KernelSpec& spec) {
  MergeArgs args = {};
  args.partial_out = Address<const float>(0);
  args.partial_lse = Address<const float>(1);
  args.out = Address<unsigned char>(2);
  args.out_head_stride = int64_t{spec.head_dim} * DTypeBytes(spec.out);
  args.out_row_stride = kKvHeads * args.out_head_stride;
  args.lse = Address<float>(3);
  args.lse_row_stride = kKvHeads;
  args.splits = 4;
  args.rows = kTokens;
  args.heads = kKvHeads;
  return args;
}

AttentionArgs Attended(const KernelSpec& spec) {
  AttentionArgs args = {};
  const int num_q_heads = kKvHeads * spec.group;
  args.q = Address<const unsigned char>(8);
  args.q_head_stride = int64_t{spec.head_dim} * DTypeBytes(spec.type);
  args.q_token_stride = num_q_heads * args.q_head_stride;
  args.out = Address<unsigned char>(9);
  args.out_head_stride = int64_t{spec.v_head_dim} * DTypeBytes(spec.out);
  args.out_token_stride = num_q_heads * args.out_head_stride;
  args.lse = Address<float>(10);
  args.lse_token_stride = num_q_heads;
  args.q_indptr = Address<const int>(11);
  args.kv_lens = Address<const int>(12);
  args.page_table = Address<const int>(13);
  args.page_table_stride = kPages / kTokens;
  args.k = View(spec, CacheSide::kKey);
  args.v = View(spec, CacheSide::kValue);
  if (spec.sinks) args.sinks = Address<const float>(14);
  if (spec.alibi) args.alibi_slopes = Address<const float>(15);
  if (spec.mask == MaskKind::kCustom) {
    args.custom_mask = Address<const unsigned char>(16);
    args.mask_indptr = Address<const int>(17);
  }
  if (spec.sparse_block != 0) {
    args.selected = Address<const int>(18);
    args.selected_per_head = 4;
  }
  args.sm_scale = 0.125f;
  args.batch = kTokens;
  args.num_kv_heads = kKvHeads;
  args.total_q = kTokens;
  return args;
}

DecodeParams Decoded(const Engine& engine, const PreparedKernel& kernel) {
  DecodeParams params;
  params.args = Attended(kernel.spec());
  params.num_q_heads = kKvHeads * kernel.spec().group;
  params.grid = ChooseDecodeGrid(engine, kernel, {kTokens, kKvHeads});
  params.workspace = Address<void>(19);
  params.workspace_bytes = DecodeWorkspaceBytes(kernel, params.grid);
  return params;
}

}  // namespace

std::function<absl::Status()> MakeRunCall(
    const Engine& engine, std::shared_ptr<const PreparedKernel> kernel) {
  const KernelSpec& spec = kernel->spec();
  switch (spec.kernel) {
    case KernelKind::kStore:
      return [kernel, args = Stored(spec)] {
        return RunStore(*kernel, args, nullptr);
      };
    case KernelKind::kDecode:
      return [kernel, params = Decoded(engine, *kernel)] {
        return RunDecode(*kernel, params, nullptr);
      };
    case KernelKind::kExtend:
      return [kernel,
              params = ExtendParams{Attended(spec), kKvHeads * spec.group}] {
        return RunExtend(*kernel, params, nullptr);
      };
    case KernelKind::kMerge:
      return [kernel, args = Merged(spec)] {
        return RunMerge(*kernel, args, nullptr);
      };
    case KernelKind::kGather:
      return [kernel, args = Gathered(spec)] {
        return RunGather(*kernel, args, nullptr);
      };
  }
  return nullptr;
}

std::unique_ptr<Engine> RecordingEngine() {
  EngineOptions options;
  options.jit_path = KVFORGE_RECORDING_JIT;
  return OrExit(Engine::Create(std::move(options)));
}

std::unique_ptr<Engine> DriverEngine() {
  EngineOptions options = OrExit(EngineOptionsFromEnvironment());
  options.target = TargetKind::kCuda;
  return OrExit(Engine::Create(std::move(options)));
}

std::vector<RunCall> MakeRunCalls(Engine& engine,
                                  const std::vector<std::string>& specs) {
  std::vector<RunCall> calls;
  for (const std::string& spec : specs) {
    calls.push_back(
        {spec,
         MakeRunCall(engine, OrExit(engine.Prepare(OrExit(ParseSpec(spec)))))});
  }
  return calls;
}

}  // namespace kvforge
