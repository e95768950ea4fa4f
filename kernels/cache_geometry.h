// How the rows of a paged cache lie in memory, and how many bytes they take:
// what an engine needs to size its pools and to hand views to the kernels.
//
// A side (K or V) has up to three planes, each in a buffer of its own:
//
//   codes        KvFormat::CodeBytes(head_dim) per (token, kv head)
//   row scales   KvFormat::RowScaleBytes()
//   block scales KvFormat::BlockScaleBytes(head_dim)
//
// One page of a plane, page_size = 2, two heads; a cell is one row:
//
//   NHD  [ t0 h0 | t0 h1 | t1 h0 | t1 h1 | pad ]
//   HND  [ t0 h0 | t1 h0 | t0 h1 | t1 h1 | pad ]
//   interleaved   [ K rows | V rows | pad ]    K and V share one buffer
//
// Pure arithmetic: no GPU, no allocation, safe from any thread.
#ifndef KVFORGE_KERNELS_CACHE_GEOMETRY_H_
#define KVFORGE_KERNELS_CACHE_GEOMETRY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "compiler/formats/format.h"
#include "compiler/spec/kernel_spec.h"
#include "templates/kernels/cache_view.h"

namespace kvforge {

// One layer's cache. Layers with another head_dim, window or pool have a
// geometry of their own.
struct CacheGeometry {
  const KvFormat* k_format = nullptr;  // into kFormats
  const KvFormat* v_format = nullptr;
  int head_dim = 0;    // of K, elements
  int v_head_dim = 0;  // of V, elements
  int num_kv_heads = 0;
  int page_size = 0;  // tokens
  SlotOrder order = SlotOrder::kNhd;
  bool interleaved = false;     // K and V in one buffer: [page, 2, ...]
  int64_t page_pad_bytes = 0;   // behind each page of each plane
  int64_t first_page_byte = 0;  // where page 0 starts in each buffer
};

enum class CacheSide { kKey, kValue };
enum class PlaneKind { kCodes, kRowScale, kBlockScale };

// One plane of one side inside its buffer. All bytes; row_bytes 0 = the format
// has no such plane.
struct Plane {
  int64_t offset = 0;  // of (page 0, slot 0, head 0)
  int64_t page_stride = 0;
  int64_t slot_stride = 0;
  int64_t head_stride = 0;
  int row_bytes = 0;
};

// OK if every number is in range and both formats exist at their head_dim.
absl::Status CheckGeometry(const CacheGeometry& geometry);

// Bytes of one token over all heads: codes and every sidecar of K and V,
// without padding. 8 heads of e4m3_row at head_dim 128: 8 * 2 * (128 + 4).
int64_t CacheBytesPerToken(const CacheGeometry& geometry);

// Bytes of one page over all planes, padding included.
int64_t CacheBytesPerPage(const CacheGeometry& geometry);

// Whole pages, and the tokens they hold, that fit in `pool_bytes`.
int64_t PagesThatFit(const CacheGeometry& geometry, int64_t pool_bytes);
int64_t TokensThatFit(const CacheGeometry& geometry, int64_t pool_bytes);

Plane PlaneOf(const CacheGeometry& geometry, CacheSide side, PlaneKind kind);

// Bytes of the buffer that holds `num_pages` pages of a plane: of both sides if
// interleaved, else of `side`. 0 if nothing has that plane.
int64_t PlaneBufferBytes(const CacheGeometry& geometry, CacheSide side,
                         PlaneKind kind, int64_t num_pages);

// The view of a side over its buffers (null where the format has no plane).
// Given scales and access widths are left at zero: see CacheView.
CacheView MakeCacheView(const CacheGeometry& geometry, CacheSide side,
                        void* codes, void* row_scales, void* block_scales);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_CACHE_GEOMETRY_H_
