// Why a key has no entry: the nearest one and the fields that differ.
#ifndef KVFORGE_RUNTIME_CACHE_WHY_MISS_H_
#define KVFORGE_RUNTIME_CACHE_WHY_MISS_H_

#include <string>
#include <vector>

#include "runtime/cache/cache_key.h"
#include "runtime/cache/disk_cache.h"

namespace kvforge {

struct MissReport {
  bool hit = false;  // an entry of exactly this key is listed
  std::string path;  // of it, or of the nearest entry; "" without entries
  // One a differing field: "tile: asked 8x64/3/4, entry has 8x32/3/4".
  std::vector<std::string> differences;
};

// The nearest whole entry: fewest differing fields, those of the same spec
// before others, then order of `listed`.
MissReport WhyMiss(const KeyFields& key,
                   const std::vector<ListedEntry>& listed);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CACHE_WHY_MISS_H_
