#include "examples/engine/pool_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace kvforge::example {
namespace {

bool SameLayout(const CacheGeometry& a, const CacheGeometry& b) {
  return a.k_format == b.k_format && a.v_format == b.v_format &&
         a.head_dim == b.head_dim && a.v_head_dim == b.v_head_dim &&
         a.num_kv_heads == b.num_kv_heads;
}

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

// What a window pool needs: of each sequence the keys that its next query token
// sees, window - 1 from anywhere in a page on, and the page that it writes to;
// the other tokens of a step; and of each sequence as many released pages again
// as its window has, for prefixes to be found in.
int WindowPoolPages(const PoolPlan& pool, const PoolBudget& budget) {
  const int page = pool.geometry.page_size;
  const int seen = CeilDiv(pool.window - 1 + page - 1, page);
  return budget.sequences * (seen + 1 + seen) +
         CeilDiv(budget.step_tokens, page);
}

}  // namespace

std::vector<PoolPlan> PlanPools(const ModelPlan& model, PoolKind kind,
                                int page_size) {
  std::vector<PoolPlan> pools;
  for (const PlannedLayer& planned : model.layers) {
    const LayerGeometry& layer = planned.layer.geometry;
    PoolPlan pool;
    pool.geometry = {planned.k_format, planned.v_format, layer.head_dim,
                     layer.v_head_dim, layer.kv_heads,   page_size};
    if (kind == PoolKind::kHybrid) pool.window = layer.window;
    const auto same =
        std::find_if(pools.begin(), pools.end(), [&](const PoolPlan& other) {
          return other.window == pool.window &&
                 SameLayout(other.geometry, pool.geometry);
        });
    PoolPlan& chosen = same == pools.end() ? pools.emplace_back(pool) : *same;
    chosen.layers.push_back(planned.layer.index);
  }
  return pools;
}

absl::Status SizePools(const PoolBudget& budget, std::vector<PoolPlan>& pools) {
  int64_t left = budget.bytes;
  int64_t page_bytes = 0;  // of one page in each pool without a window
  for (PoolPlan& pool : pools) {
    if (pool.window == 0) {
      page_bytes += pool.PageBytes();
      continue;
    }
    pool.num_pages = WindowPoolPages(pool, budget);
    left -= pool.num_pages * pool.PageBytes();
  }
  if (left < page_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a KV cache of ", budget.bytes, " bytes: ", budget.bytes - left,
        " are for layers with a window, and a page of the others takes ",
        page_bytes, "; give at least ", budget.bytes - left + page_bytes,
        " bytes with --kv-cache-bytes, or run fewer sequences"));
  }
  for (PoolPlan& pool : pools) {
    if (pool.window == 0) {
      pool.num_pages = static_cast<int>(left / page_bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace kvforge::example
