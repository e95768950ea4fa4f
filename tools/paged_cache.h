// A paged cache on an engine's target with every byte poisoned (0xFF: NaN
// codes, NaN scales), and the comparison of what a store wrote into it.
#ifndef KVFORGE_TOOLS_PAGED_CACHE_H_
#define KVFORGE_TOOLS_PAGED_CACHE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cache_geometry.h"
#include "kernels/engine.h"
#include "kernels/target_memory.h"
#include "tools/attention_case.h"

namespace kvforge {

inline constexpr uint8_t kPoison = 0xFF;

// How one case's cache and source rows lie in memory.
struct CaseLayout {
  const char* name;
  SlotOrder order;
  bool interleaved;
  int64_t page_pad_bytes;
  int64_t first_page_byte;
  // Bytes between the end of a token's row and the next: K's and V's sources
  // have pitches of their own.
  int64_t k_source_pad;
  int64_t v_source_pad;
  int64_t q_pad;
};

// `narrow` leaves bases and strides at multiples of 4 bytes only.
inline constexpr CaseLayout kCaseLayouts[] = {
    {"nhd", SlotOrder::kNhd, false, 0, 0, 0, 0, 0},
    {"hnd-interleaved", SlotOrder::kHnd, true, 0, 0, 1536, 0, 64},
    {"nhd-padded", SlotOrder::kNhd, false, 96, 256, 0, 768, 32},
    {"hnd-narrow", SlotOrder::kHnd, false, 4, 12, 4, 8, 0},
    {"nhd-interleaved-padded", SlotOrder::kNhd, true, 48, 64, 32, 16, 0},
    {"hnd", SlotOrder::kHnd, false, 0, 0, 0, 0, 0},
};

class PagedCache {
 public:
  static absl::StatusOr<PagedCache> Create(const Engine& engine,
                                           const CacheGeometry& geometry,
                                           int64_t num_pages);

  const CacheGeometry& geometry() const { return geometry_; }
  int64_t num_slots() const { return num_pages_ * geometry_.page_size; }
  // Scales that the caller gives are zero.
  CacheView View(CacheSide side) const;

  // OK if the rows at `slots` are exactly those of the two sides and every
  // other byte is still poison. The error says where they differ first and how
  // often.
  absl::Status CheckStored(const CaseSide& k, const CaseSide& v,
                           absl::Span<const int64_t> slots) const;

 private:
  // The buffer that holds a plane of a side.
  const TargetBuffer& Buffer(CacheSide side, PlaneKind kind) const;
  absl::Status CheckPlane(CacheSide side, PlaneKind kind, const CaseSide& rows,
                          absl::Span<const int64_t> slots,
                          std::vector<uint8_t>& image) const;

  CacheGeometry geometry_;
  int64_t num_pages_ = 0;
  TargetBuffer buffers_[2][3];  // [side][kind]; [0] only if interleaved
};

// The geometry of a case's cache under a layout.
CacheGeometry GeometryOf(const AttentionCase& problem,
                         const CaseLayout& layout);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_PAGED_CACHE_H_
