#include "kernels/known_views.h"

namespace kvforge {
namespace {

// A caller that goes through addresses without end must not fill the memory.
constexpr size_t kMostViews = 1024;

bool Same(const StridedBytes& a, const StridedBytes& b) {
  return a.base == b.base && a.page_stride == b.page_stride &&
         a.slot_stride == b.slot_stride && a.head_stride == b.head_stride;
}

// Without the access widths, which are not the caller's. A scale that is no
// number is checked each time.
bool Same(const CacheView& a, const CacheView& b) {
  return Same(a.codes, b.codes) && Same(a.row_scale, b.row_scale) &&
         Same(a.block_scale, b.block_scale) && a.scale_ptr == b.scale_ptr &&
         a.scale == b.scale;
}

}  // namespace

bool operator==(const ViewKey& a, const ViewKey& b) {
  return Same(a.k, b.k) && Same(a.v, b.v) && a.num_kv_heads == b.num_kv_heads &&
         a.heads_per_block_log2 == b.heads_per_block_log2;
}

bool KnownViews::Find(const ViewKey& key,
                      absl::FunctionRef<void(const ViewFacts&)> use) const {
  std::lock_guard lock(mutex_);
  const auto found = facts_.find(key);
  if (found == facts_.end()) return false;
  use(found->second);
  return true;
}

void KnownViews::Keep(const ViewKey& key, const ViewFacts& facts) {
  std::lock_guard lock(mutex_);
  if (facts_.size() >= kMostViews) facts_.clear();
  facts_.emplace(key, facts);
}

}  // namespace kvforge
