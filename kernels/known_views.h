// What the checks of a cache's views gave, kept for further launches: an engine
// launches again and again with the few caches that it has.
#ifndef KVFORGE_KERNELS_KNOWN_VIEWS_H_
#define KVFORGE_KERNELS_KNOWN_VIEWS_H_

#include <mutex>
#include <utility>

#include "absl/container/node_hash_map.h"
#include "absl/functional/function_ref.h"
#include "templates/kernels/attention_args.h"

namespace kvforge {

// Views as a caller gives them, and what else their checks depend on beside the
// SPEC. Hashed by where the codes are: caches that differ in nothing else are
// few.
struct ViewKey {
  CacheView k;
  CacheView v;
  int num_kv_heads = 0;
  int heads_per_block_log2 = 0;  // decode only

  friend bool operator==(const ViewKey& a, const ViewKey& b);
  template <typename H>
  friend H AbslHashValue(H hash, const ViewKey& key) {
    return H::combine(std::move(hash), key.k.codes.base, key.v.codes.base);
  }
};

// The access widths that CheckCacheView chose, and the tensor maps that
// decode's copies read.
struct ViewFacts {
  int k_code_bytes = 0, k_block_scale_bytes = 0;
  int v_code_bytes = 0, v_block_scale_bytes = 0;
  int boxes = 0;  // DecodeArgs::boxes; which of the maps there are
  TensorMap k_map, v_map, k_scale_map, v_scale_map, k_block_map, v_block_map;
};

// Thread safe.
class KnownViews {
 public:
  // Calls `use` with what is known of `key`; false if that is nothing.
  bool Find(const ViewKey& key,
            absl::FunctionRef<void(const ViewFacts&)> use) const;
  void Keep(const ViewKey& key, const ViewFacts& facts);

 private:
  mutable std::mutex mutex_;
  absl::node_hash_map<ViewKey, ViewFacts> facts_;  // guarded by mutex_
};

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_KNOWN_VIEWS_H_
