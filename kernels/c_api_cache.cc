// c_api.h: cache geometry.
#include <cstdint>
#include <limits>

#include "kernels/c_api.h"
#include "kernels/c_api_boundary.h"
#include "kernels/cache_geometry.h"
#include "runtime/base/status_macros.h"

namespace kvforge::c_api {
namespace {

static_assert(KVFORGE_ORDER_NHD == static_cast<int>(SlotOrder::kNhd));
static_assert(KVFORGE_ORDER_HND == static_cast<int>(SlotOrder::kHnd));
static_assert(KVFORGE_SIDE_K == static_cast<int>(CacheSide::kKey));
static_assert(KVFORGE_SIDE_V == static_cast<int>(CacheSide::kValue));
static_assert(KVFORGE_PLANE_CODES == static_cast<int>(PlaneKind::kCodes));
static_assert(KVFORGE_PLANE_ROW_SCALES ==
              static_cast<int>(PlaneKind::kRowScale));
static_assert(KVFORGE_PLANE_BLOCK_SCALES ==
              static_cast<int>(PlaneKind::kBlockScale));

// One of 0 .. count - 1.
absl::Status CheckChoice(absl::string_view call, absl::string_view name,
                         int32_t value, int count, absl::string_view names) {
  if (value >= 0 && value < count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(call, ": ", name, " = ", value, " is out of range; ", names,
                   " are supported; pass one of them"));
}

absl::StatusOr<CacheGeometry> ReadGeometry(absl::string_view call,
                                           const kvforge_cache_geometry* from) {
  kvforge_cache_geometry c;
  RETURN_IF_ERROR(ReadStruct(call, "geometry", from, c));
  RETURN_IF_ERROR(
      CheckNotNull(call, "geometry.k_format", c.k_format, "a format's name"));
  RETURN_IF_ERROR(CheckChoice(call, "geometry.order", c.order, 2,
                              "KVFORGE_ORDER_NHD and KVFORGE_ORDER_HND"));
  RETURN_IF_ERROR(
      CheckChoice(call, "geometry.interleaved", c.interleaved, 2, "0 and 1"));
  CacheGeometry geometry;
  ASSIGN_OR_RETURN(geometry.k_format, FindFormat(c.k_format));
  geometry.v_format = geometry.k_format;
  if (c.v_format != nullptr) {
    ASSIGN_OR_RETURN(geometry.v_format, FindFormat(c.v_format));
  }
  geometry.head_dim = c.head_dim;
  geometry.v_head_dim = c.v_head_dim == 0 ? c.head_dim : c.v_head_dim;
  geometry.num_kv_heads = c.num_kv_heads;
  geometry.page_size = c.page_size;
  geometry.order = static_cast<SlotOrder>(c.order);
  geometry.interleaved = c.interleaved == 1;
  geometry.page_pad_bytes = c.page_pad_bytes;
  geometry.first_page_byte = c.first_page_byte;
  RETURN_IF_ERROR(CheckGeometry(geometry));
  return geometry;
}

absl::Status CheckSideAndPlane(absl::string_view call, int32_t side,
                               int32_t plane_kind) {
  RETURN_IF_ERROR(
      CheckChoice(call, "side", side, 2, "KVFORGE_SIDE_K and KVFORGE_SIDE_V"));
  return CheckChoice(call, "plane_kind", plane_kind, 3,
                     "KVFORGE_PLANE_CODES, KVFORGE_PLANE_ROW_SCALES and "
                     "KVFORGE_PLANE_BLOCK_SCALES");
}

absl::Status CheckBytes(absl::string_view call, absl::string_view name,
                        int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(call, ": ", name, " = ", value,
                   " is negative; 0 or more is supported; pass what the pool "
                   "has"));
}

absl::Status BufferBytes(const kvforge_cache_geometry* from, int32_t side,
                         int32_t plane_kind, int64_t num_pages,
                         int64_t* result) {
  constexpr char kCall[] = "kvforge_cache_plane_buffer_bytes";
  RETURN_IF_ERROR(CheckNotNull(kCall, "bytes", result, "where it goes"));
  ASSIGN_OR_RETURN(const CacheGeometry geometry, ReadGeometry(kCall, from));
  RETURN_IF_ERROR(CheckSideAndPlane(kCall, side, plane_kind));
  RETURN_IF_ERROR(CheckBytes(kCall, "num_pages", num_pages));
  const auto bytes = [&](int64_t pages) {
    return PlaneBufferBytes(geometry, static_cast<CacheSide>(side),
                            static_cast<PlaneKind>(plane_kind), pages);
  };
  const int64_t page_bytes = bytes(1) - bytes(0);
  const int64_t most =
      page_bytes == 0
          ? num_pages
          : (std::numeric_limits<int64_t>::max() - bytes(0)) / page_bytes;
  if (num_pages > most) {
    return absl::OutOfRangeError(
        absl::StrCat(kCall, ": ", num_pages, " pages of ", page_bytes,
                     " bytes are more than 64 bits hold; up to ", most,
                     " pages are supported; take num_pages from "
                     "kvforge_cache_pages_that_fit"));
  }
  *result = bytes(num_pages);
  return absl::OkStatus();
}

// A buffer where the format has a plane.
absl::Status CheckPlaneBuffer(const CacheGeometry& geometry, CacheSide side,
                              PlaneKind kind, absl::string_view name,
                              const void* buffer) {
  if (PlaneOf(geometry, side, kind).row_bytes == 0) return absl::OkStatus();
  const KvFormat& format =
      side == CacheSide::kKey ? *geometry.k_format : *geometry.v_format;
  return CheckNotNull(
      "kvforge_cache_make_view", name, buffer,
      absl::StrCat("a buffer, since ", format.name, " has such a plane"));
}

kvforge_strided_rows ToC(const StridedBytes& rows) {
  return {rows.base, rows.page_stride, rows.slot_stride, rows.head_stride};
}

absl::Status MakeView(const kvforge_cache_geometry* from, int32_t side_number,
                      void* codes, void* row_scales, void* block_scales,
                      kvforge_cache_view* view) {
  constexpr char kCall[] = "kvforge_cache_make_view";
  ASSIGN_OR_RETURN(const CacheGeometry geometry, ReadGeometry(kCall, from));
  RETURN_IF_ERROR(CheckSideAndPlane(kCall, side_number, KVFORGE_PLANE_CODES));
  RETURN_IF_ERROR(CheckStruct(kCall, "view", view));
  const CacheSide side = static_cast<CacheSide>(side_number);
  RETURN_IF_ERROR(
      CheckPlaneBuffer(geometry, side, PlaneKind::kCodes, "codes", codes));
  RETURN_IF_ERROR(CheckPlaneBuffer(geometry, side, PlaneKind::kRowScale,
                                   "row_scales", row_scales));
  RETURN_IF_ERROR(CheckPlaneBuffer(geometry, side, PlaneKind::kBlockScale,
                                   "block_scales", block_scales));
  const CacheView made =
      MakeCacheView(geometry, side, codes, row_scales, block_scales);
  kvforge_cache_view c = {};
  c.codes = ToC(made.codes);
  c.row_scales = ToC(made.row_scale);
  c.block_scales = ToC(made.block_scale);
  WriteStruct(c, view);
  return absl::OkStatus();
}

absl::Status PagesThatFit(const kvforge_cache_geometry* from,
                          int64_t pool_bytes, int64_t* pages) {
  constexpr char kCall[] = "kvforge_cache_pages_that_fit";
  RETURN_IF_ERROR(CheckNotNull(kCall, "pages", pages, "where it goes"));
  RETURN_IF_ERROR(CheckBytes(kCall, "pool_bytes", pool_bytes));
  ASSIGN_OR_RETURN(const CacheGeometry geometry, ReadGeometry(kCall, from));
  *pages = kvforge::PagesThatFit(geometry, pool_bytes);
  return absl::OkStatus();
}

absl::Status FindPlane(const kvforge_cache_geometry* from, int32_t side,
                       int32_t plane_kind, kvforge_plane* plane) {
  constexpr char kCall[] = "kvforge_cache_plane";
  RETURN_IF_ERROR(CheckNotNull(kCall, "plane", plane, "where it goes"));
  ASSIGN_OR_RETURN(const CacheGeometry geometry, ReadGeometry(kCall, from));
  RETURN_IF_ERROR(CheckSideAndPlane(kCall, side, plane_kind));
  const Plane found = PlaneOf(geometry, static_cast<CacheSide>(side),
                              static_cast<PlaneKind>(plane_kind));
  *plane = {found.offset, found.page_stride, found.slot_stride,
            found.head_stride, found.row_bytes};
  return absl::OkStatus();
}

// CacheBytesPerToken or CacheBytesPerPage.
absl::Status GeometryBytes(absl::string_view call,
                           int64_t (*bytes_of)(const CacheGeometry&),
                           const kvforge_cache_geometry* from, int64_t* bytes) {
  RETURN_IF_ERROR(CheckNotNull(call, "bytes", bytes, "where it goes"));
  ASSIGN_OR_RETURN(const CacheGeometry geometry, ReadGeometry(call, from));
  *bytes = bytes_of(geometry);
  return absl::OkStatus();
}

}  // namespace
}  // namespace kvforge::c_api

namespace api = kvforge::c_api;

int kvforge_cache_bytes_per_token(const kvforge_cache_geometry* geometry,
                                  int64_t* bytes) {
  return api::Guarded([&] {
    return api::GeometryBytes("kvforge_cache_bytes_per_token",
                              kvforge::CacheBytesPerToken, geometry, bytes);
  });
}

int kvforge_cache_bytes_per_page(const kvforge_cache_geometry* geometry,
                                 int64_t* bytes) {
  return api::Guarded([&] {
    return api::GeometryBytes("kvforge_cache_bytes_per_page",
                              kvforge::CacheBytesPerPage, geometry, bytes);
  });
}

int kvforge_cache_pages_that_fit(const kvforge_cache_geometry* geometry,
                                 int64_t pool_bytes, int64_t* pages) {
  return api::Guarded(
      [&] { return api::PagesThatFit(geometry, pool_bytes, pages); });
}

int kvforge_cache_plane(const kvforge_cache_geometry* geometry, int32_t side,
                        int32_t plane_kind, kvforge_plane* plane) {
  return api::Guarded(
      [&] { return api::FindPlane(geometry, side, plane_kind, plane); });
}

int kvforge_cache_plane_buffer_bytes(const kvforge_cache_geometry* geometry,
                                     int32_t side, int32_t plane_kind,
                                     int64_t num_pages, int64_t* bytes) {
  return api::Guarded([&] {
    return api::BufferBytes(geometry, side, plane_kind, num_pages, bytes);
  });
}

int kvforge_cache_make_view(const kvforge_cache_geometry* geometry,
                            int32_t side, void* codes, void* row_scales,
                            void* block_scales, kvforge_cache_view* view) {
  return api::Guarded([&] {
    return api::MakeView(geometry, side, codes, row_scales, block_scales, view);
  });
}
