// The smallest engine: stores ten tokens of one sequence into an e4m3 cache and
// attends to them with one query token, by decode and by extend. Runs on the
// CPU; with TargetKind::kCuda and device memory it runs on a GPU unchanged.
#include <algorithm>
#include <cstdio>

#include "kernels/cache_geometry.h"
#include "kernels/decode.h"
#include "kernels/extend.h"
#include "kernels/store.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
constexpr int kTokens = 10, kHeads = 8, kKvHeads = 2, kDim = 64, kPage = 16;
using Byte = unsigned char;

// A cache of one page, the sources of its rows, one query and its result.
alignas(16) Byte k_codes[kPage * kKvHeads * kDim], v_codes[sizeof(k_codes)];
alignas(16) float k_scales[kPage * kKvHeads], v_scales[kPage * kKvHeads];
alignas(16) float source[kTokens][kKvHeads][kDim];
alignas(16) float q[kHeads][kDim], out[kHeads][kDim], lse[kHeads];

absl::Status Main() {
  ASSIGN_OR_RETURN(EngineOptions options, EngineOptionsFromEnvironment());
  ASSIGN_OR_RETURN(const auto engine, Engine::Create(options));
  ASSIGN_OR_RETURN(KernelSpec spec,
                   ParseSpec("store/e4m3_row/d64/g1/page16/f32"));
  ASSIGN_OR_RETURN(const auto store, engine->Prepare(spec));
  ASSIGN_OR_RETURN(spec, ParseSpec("extend/e4m3_row/d64/g4/page16/f32"));
  ASSIGN_OR_RETURN(const auto extend, engine->Prepare(spec));
  ASSIGN_OR_RETURN(spec, ParseSpec("decode/e4m3_row/d64/g4/page16/f32"));
  ASSIGN_OR_RETURN(const auto decode, engine->Prepare(spec));

  std::fill_n(&source[0][0][0], kTokens * kKvHeads * kDim, 1.75f);
  const CacheGeometry geometry = {spec.k_format, spec.v_format, kDim,
                                  kDim,          kKvHeads,      kPage};
  const long long slots[kTokens] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  StoreArgs rows = {};
  rows.k_src = {reinterpret_cast<Byte*>(source), sizeof(source[0]),
                sizeof(source[0][0])};
  rows.v_src = rows.k_src;
  rows.k = MakeCacheView(geometry, CacheSide::kKey, k_codes, k_scales, nullptr);
  rows.v =
      MakeCacheView(geometry, CacheSide::kValue, v_codes, v_scales, nullptr);
  rows.slots = slots;
  rows.num_slots = kPage;
  rows.num_tokens = kTokens;
  rows.num_kv_heads = kKvHeads;
  RETURN_IF_ERROR(RunStore(*store, rows, /*stream=*/nullptr));

  const int q_indptr[] = {0, 1}, kv_lens[] = {kTokens}, page_table[] = {0};
  AttentionArgs args = {};
  args.q = reinterpret_cast<Byte*>(q);
  args.out = reinterpret_cast<Byte*>(out);
  args.q_token_stride = args.out_token_stride = sizeof(q);
  args.q_head_stride = args.out_head_stride = sizeof(q[0]);
  args.lse = lse;
  args.q_indptr = q_indptr;
  args.kv_lens = kv_lens;
  args.page_table = page_table;
  args.k = rows.k;
  args.v = rows.v;
  args.sm_scale = 0.125f;
  args.batch = args.total_q = 1;
  args.num_kv_heads = kKvHeads;
  RETURN_IF_ERROR(RunDecode(*decode, {args, kHeads}, nullptr));
  std::printf("decode: out %g (1.75), lse %g (ln 10)\n", out[7][63], lse[7]);
  RETURN_IF_ERROR(RunExtend(*extend, {args, kHeads}, nullptr));
  std::printf("extend: out %g (1.75), lse %g (ln 10)\n", out[0][0], lse[0]);
  return absl::OkStatus();
}

}  // namespace kvforge

int main() {
  const absl::Status status = kvforge::Main();
  std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
