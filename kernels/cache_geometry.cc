#include "kernels/cache_geometry.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr CacheSide kSides[] = {CacheSide::kKey, CacheSide::kValue};
constexpr PlaneKind kPlanes[] = {PlaneKind::kCodes, PlaneKind::kRowScale,
                                 PlaneKind::kBlockScale};

int RowBytesOf(const CacheGeometry& geometry, CacheSide side, PlaneKind kind) {
  const bool key = side == CacheSide::kKey;
  const KvFormat& format = key ? *geometry.k_format : *geometry.v_format;
  const int head_dim = key ? geometry.head_dim : geometry.v_head_dim;
  switch (kind) {
    case PlaneKind::kCodes:
      return format.CodeBytes(head_dim);
    case PlaneKind::kRowScale:
      return format.RowScaleBytes();
    case PlaneKind::kBlockScale:
      return format.BlockScaleBytes(head_dim);
  }
  return 0;
}

// A page and everything in front of it stay below the largest stride that a
// launch takes.
constexpr int64_t kMaxPageRows = int64_t{1} << 32;
constexpr int64_t kMaxPadBytes = int64_t{1} << 44;

// Bytes of one side's rows in one page.
int64_t PageRowBytes(const CacheGeometry& geometry, CacheSide side,
                     PlaneKind kind) {
  return int64_t{geometry.page_size} * geometry.num_kv_heads *
         RowBytesOf(geometry, side, kind);
}

absl::Status NotPositive(absl::string_view field, int64_t value) {
  return absl::InvalidArgumentError(
      absl::StrCat("cache geometry: ", field, " = ", value,
                   " is out of range; it must be 1 or more; set it from the "
                   "model's configuration"));
}

}  // namespace

absl::Status CheckGeometry(const CacheGeometry& geometry) {
  if (geometry.k_format == nullptr || geometry.v_format == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cache geometry: ",
                     geometry.k_format == nullptr ? "k_format" : "v_format",
                     " is null; it must be a row of the format table; look it "
                     "up by its name"));
  }
  if (geometry.num_kv_heads < 1) {
    return NotPositive("num_kv_heads", geometry.num_kv_heads);
  }
  if (geometry.page_size < 1) {
    return NotPositive("page_size", geometry.page_size);
  }
  if (geometry.page_size > kMaxPageSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cache geometry: page_size = ", geometry.page_size,
        " is out of range; 1 to ", kMaxPageSize,
        " tokens are supported, as in a SPEC; choose a page size in this "
        "range"));
  }
  if (geometry.page_pad_bytes < 0 || geometry.first_page_byte < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cache geometry: page_pad_bytes = ", geometry.page_pad_bytes,
        ", first_page_byte = ", geometry.first_page_byte,
        " is out of range; both must be 0 or more; pass 0 for a dense cache"));
  }
  RETURN_IF_ERROR(CheckFormat(*geometry.k_format, geometry.head_dim));
  RETURN_IF_ERROR(CheckFormat(*geometry.v_format, geometry.v_head_dim));
  const int64_t page_rows = int64_t{geometry.page_size} * geometry.num_kv_heads;
  if (page_rows > kMaxPageRows || geometry.page_pad_bytes > kMaxPadBytes ||
      geometry.first_page_byte > kMaxPadBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cache geometry: a page of ", geometry.page_size, " tokens and ",
        geometry.num_kv_heads,
        " kv heads, page_pad_bytes = ", geometry.page_pad_bytes,
        ", first_page_byte = ", geometry.first_page_byte, "; up to ",
        kMaxPageRows, " rows a page and ", kMaxPadBytes,
        " bytes of padding are supported; set them from the model's "
        "configuration"));
  }
  return absl::OkStatus();
}

int64_t CacheBytesPerToken(const CacheGeometry& geometry) {
  return int64_t{geometry.num_kv_heads} *
         (geometry.k_format->RowBytes(geometry.head_dim) +
          geometry.v_format->RowBytes(geometry.v_head_dim));
}

int64_t CacheBytesPerPage(const CacheGeometry& geometry) {
  int64_t bytes = 0;
  for (PlaneKind kind : kPlanes) {
    bool padded = false;  // an interleaved page is padded once
    for (CacheSide side : kSides) {
      const int64_t rows = PageRowBytes(geometry, side, kind);
      if (rows == 0) continue;
      bytes += rows;
      if (!padded || !geometry.interleaved) bytes += geometry.page_pad_bytes;
      padded = true;
    }
  }
  return bytes;
}

int64_t PagesThatFit(const CacheGeometry& geometry, int64_t pool_bytes) {
  return pool_bytes <= 0 ? 0 : pool_bytes / CacheBytesPerPage(geometry);
}

int64_t TokensThatFit(const CacheGeometry& geometry, int64_t pool_bytes) {
  return PagesThatFit(geometry, pool_bytes) * geometry.page_size;
}

Plane PlaneOf(const CacheGeometry& geometry, CacheSide side, PlaneKind kind) {
  Plane plane;
  plane.row_bytes = RowBytesOf(geometry, side, kind);
  if (plane.row_bytes == 0) return plane;
  const int64_t row = plane.row_bytes;
  const bool nhd = geometry.order == SlotOrder::kNhd;
  plane.slot_stride = nhd ? row * geometry.num_kv_heads : row;
  plane.head_stride = nhd ? row : row * geometry.page_size;
  plane.offset = geometry.first_page_byte;
  plane.page_stride =
      PageRowBytes(geometry, side, kind) + geometry.page_pad_bytes;
  if (geometry.interleaved) {
    const int64_t keys = PageRowBytes(geometry, CacheSide::kKey, kind);
    const int64_t values = PageRowBytes(geometry, CacheSide::kValue, kind);
    if (side == CacheSide::kValue) plane.offset += keys;
    plane.page_stride = keys + values + geometry.page_pad_bytes;
  }
  return plane;
}

int64_t PlaneBufferBytes(const CacheGeometry& geometry, CacheSide side,
                         PlaneKind kind, int64_t num_pages) {
  Plane plane = PlaneOf(geometry, side, kind);
  if (plane.row_bytes == 0 && geometry.interleaved) {
    plane = PlaneOf(
        geometry, side == CacheSide::kKey ? CacheSide::kValue : CacheSide::kKey,
        kind);
  }
  if (plane.row_bytes == 0) return 0;
  return geometry.first_page_byte + num_pages * plane.page_stride;
}

CacheView MakeCacheView(const CacheGeometry& geometry, CacheSide side,
                        void* codes, void* row_scales, void* block_scales) {
  const auto strided = [&](PlaneKind kind, void* buffer) {
    const Plane plane = PlaneOf(geometry, side, kind);
    StridedBytes bytes{};
    if (plane.row_bytes == 0 || buffer == nullptr) return bytes;
    bytes.base = static_cast<unsigned char*>(buffer) + plane.offset;
    bytes.page_stride = plane.page_stride;
    bytes.slot_stride = plane.slot_stride;
    bytes.head_stride = plane.head_stride;
    return bytes;
  };
  CacheView view{};
  view.codes = strided(PlaneKind::kCodes, codes);
  view.row_scale = strided(PlaneKind::kRowScale, row_scales);
  view.block_scale = strided(PlaneKind::kBlockScale, block_scales);
  return view;
}

}  // namespace kvforge
