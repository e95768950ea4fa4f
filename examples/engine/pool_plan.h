// Which layers share a pool of pages, and how a budget of bytes is divided
// among the pools. Arithmetic only: nothing is allocated.
#ifndef KVFORGE_EXAMPLES_ENGINE_POOL_PLAN_H_
#define KVFORGE_EXAMPLES_ENGINE_POOL_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cache_geometry.h"
#include "tools/model_specs.h"

namespace kvforge::example {

enum class PoolKind {
  kUniform,  // every layer keeps every token
  kHybrid,   // layers with a window keep what their windows can see
};

// A pool: page p of it is page p of each of its layers.
struct PoolPlan {
  CacheGeometry geometry;   // of one layer
  int window = 0;           // tokens a query sees; 0 = all are kept
  std::vector<int> layers;  // of the model; their order is that in the pool
  int num_pages = 0;        // from SizePools

  // Of one page in all layers.
  int64_t PageBytes() const {
    return CacheBytesPerPage(geometry) * static_cast<int64_t>(layers.size());
  }
};

// One pool for the layers of one geometry and format; with kHybrid also of one
// window.
std::vector<PoolPlan> PlanPools(const ModelPlan& model, PoolKind kind,
                                int page_size);

struct PoolBudget {
  int64_t bytes = 0;
  int sequences = 0;    // that run at a time
  int step_tokens = 0;  // of all sequences together, at most, in one step
};

// Sets num_pages. Pools with a window get what the windows of all sequences
// need, and as much again for prefixes to be found in; the others share the
// rest so that all hold the same number of tokens.
// Errors  kResourceExhausted  not a page is left for these
absl::Status SizePools(const PoolBudget& budget, std::vector<PoolPlan>& pools);

}  // namespace kvforge::example

#endif  // KVFORGE_EXAMPLES_ENGINE_POOL_PLAN_H_
