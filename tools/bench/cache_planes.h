// The planes of a paged cache on a GPU and single rows of them read back.
#ifndef KVFORGE_TOOLS_BENCH_CACHE_PLANES_H_
#define KVFORGE_TOOLS_BENCH_CACHE_PLANES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/formats/row_codec.h"
#include "kernels/cache_geometry.h"
#include "kernels/target_memory.h"

namespace kvforge::bench {

// Given scale of formats with one for the whole cache: e4m3 then reaches 7,
// which normally distributed rows hardly pass.
inline constexpr float kGivenScale = 1.0f / 64;

// NHD without padding, so that one and the same cache can be seen in pages of
// any size that divides the slots.
class CachePlanes {
 public:
  // kUnimplemented for formats with a scale per head.
  static absl::StatusOr<CachePlanes> Allocate(const Engine& engine,
                                              const KvFormat& format,
                                              int head_dim, int64_t num_slots);

  int64_t num_slots() const { return num_slots_; }
  const KvFormat& format() const { return *format_; }
  int head_dim() const { return head_dim_; }
  CacheView View(CacheSide side, int page_size) const;
  absl::Status Fill(uint8_t value);
  // One (slot, kv head) row; waits.
  absl::StatusOr<QuantizedRow> Read(CacheSide side, int64_t slot,
                                    int head) const;

 private:
  CacheGeometry Geometry(int page_size) const;

  const KvFormat* format_ = nullptr;
  int head_dim_ = 0;
  int64_t num_slots_ = 0;
  TargetBuffer buffers_[2][3];  // [CacheSide][PlaneKind]
};

// Whether two rows hold the same bytes.
bool SameRow(const QuantizedRow& a, const QuantizedRow& b);

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_CACHE_PLANES_H_
