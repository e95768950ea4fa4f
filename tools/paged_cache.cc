#include "tools/paged_cache.h"

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr CacheSide kSides[] = {CacheSide::kKey, CacheSide::kValue};
constexpr PlaneKind kPlanes[] = {PlaneKind::kCodes, PlaneKind::kRowScale,
                                 PlaneKind::kBlockScale};
constexpr const char* kPlaneNames[] = {"codes", "row scales", "block scales"};

const char* SideName(CacheSide side) {
  return side == CacheSide::kKey ? "k" : "v";
}

// The expected bytes of row `row` of a plane.
std::vector<uint8_t> RowBytes(const CaseSide& side, PlaneKind kind, int64_t row,
                              int row_bytes) {
  std::vector<uint8_t> bytes(row_bytes);
  switch (kind) {
    case PlaneKind::kCodes:
      std::memcpy(bytes.data(), side.codes.data() + row * row_bytes, row_bytes);
      break;
    case PlaneKind::kBlockScale:
      std::memcpy(bytes.data(), side.block_scale.data() + row * row_bytes,
                  row_bytes);
      break;
    case PlaneKind::kRowScale:
      std::memcpy(bytes.data(), &side.row_scale[row], 4);
      if (!side.row_min.empty()) {
        std::memcpy(bytes.data() + 4, &side.row_min[row], 4);
      }
      break;
  }
  return bytes;
}

// Bytes are equal; of f32 row scales also two NaNs, whose payload means
// nothing.
bool SameRow(PlaneKind kind, const uint8_t* stored,
             const std::vector<uint8_t>& expected) {
  if (std::memcmp(stored, expected.data(), expected.size()) == 0) return true;
  if (kind != PlaneKind::kRowScale) return false;
  for (size_t at = 0; at < expected.size(); at += 4) {
    float a, b;
    std::memcpy(&a, stored + at, 4);
    std::memcpy(&b, expected.data() + at, 4);
    const bool same_bits = std::memcmp(&a, &b, 4) == 0;
    if (!same_bits && !(std::isnan(a) && std::isnan(b))) return false;
  }
  return true;
}

// A recorded file may ask for any number of pages; the pool is poisoned and
// read back, so it has to fit memory together with its copy.
absl::Status CheckPoolFits(const CacheGeometry& geometry, int64_t num_pages) {
  const int64_t pool_bytes =
      int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) / 4;
  const int64_t page_bytes = CacheBytesPerPage(geometry);
  if (num_pages <= pool_bytes / page_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a cache of ", num_pages, " pages of ", page_bytes,
                   " bytes does not fit; a quarter of this machine's memory, ",
                   pool_bytes, " bytes, is used at most; use fewer pages"));
}

}  // namespace

CacheGeometry GeometryOf(const AttentionCase& problem,
                         const CaseLayout& layout) {
  CacheGeometry geometry;
  geometry.k_format = problem.k.format;
  geometry.v_format = problem.v.format;
  geometry.head_dim = problem.k.head_dim;
  geometry.v_head_dim = problem.v.head_dim;
  geometry.num_kv_heads = problem.num_kv_heads;
  geometry.page_size = problem.page_size;
  geometry.order = layout.order;
  geometry.interleaved = layout.interleaved;
  geometry.page_pad_bytes = layout.page_pad_bytes;
  geometry.first_page_byte = layout.first_page_byte;
  return geometry;
}

absl::StatusOr<PagedCache> PagedCache::Create(const Engine& engine,
                                              const CacheGeometry& geometry,
                                              int64_t num_pages) {
  RETURN_IF_ERROR(CheckGeometry(geometry));
  RETURN_IF_ERROR(CheckPoolFits(geometry, num_pages));
  PagedCache cache;
  cache.geometry_ = geometry;
  cache.num_pages_ = num_pages;
  for (CacheSide side : kSides) {
    if (geometry.interleaved && side == CacheSide::kValue) continue;
    for (PlaneKind kind : kPlanes) {
      TargetBuffer& buffer =
          cache.buffers_[static_cast<int>(side)][static_cast<int>(kind)];
      ASSIGN_OR_RETURN(buffer, TargetBuffer::Allocate(
                                   engine, PlaneBufferBytes(geometry, side,
                                                            kind, num_pages)));
      RETURN_IF_ERROR(buffer.Fill(kPoison));
    }
  }
  return cache;
}

const TargetBuffer& PagedCache::Buffer(CacheSide side, PlaneKind kind) const {
  return buffers_[geometry_.interleaved ? 0 : static_cast<int>(side)]
                 [static_cast<int>(kind)];
}

CacheView PagedCache::View(CacheSide side) const {
  return MakeCacheView(geometry_, side, Buffer(side, PlaneKind::kCodes).data(),
                       Buffer(side, PlaneKind::kRowScale).data(),
                       Buffer(side, PlaneKind::kBlockScale).data());
}

absl::Status PagedCache::CheckPlane(CacheSide side, PlaneKind kind,
                                    const CaseSide& rows,
                                    absl::Span<const int64_t> slots,
                                    std::vector<uint8_t>& image) const {
  const Plane plane = PlaneOf(geometry_, side, kind);
  if (plane.row_bytes == 0) return absl::OkStatus();
  int64_t bad_rows = 0;
  std::string first;
  for (size_t t = 0; t < slots.size(); ++t) {
    if (slots[t] < 0) continue;
    for (int h = 0; h < geometry_.num_kv_heads; ++h) {
      const std::vector<uint8_t> expected =
          RowBytes(rows, kind, t * geometry_.num_kv_heads + h, plane.row_bytes);
      uint8_t* stored = image.data() + plane.offset +
                        slots[t] / geometry_.page_size * plane.page_stride +
                        slots[t] % geometry_.page_size * plane.slot_stride +
                        h * plane.head_stride;
      if (!SameRow(kind, stored, expected)) {
        int i = 0;
        while (stored[i] == expected[i]) ++i;
        if (bad_rows++ == 0) {
          first = absl::StrCat("token ", t, " (slot ", slots[t], ") head ", h,
                               " byte ", i, " is 0x", absl::Hex(stored[i]),
                               ", expected 0x", absl::Hex(expected[i]));
        }
      }
      // What is left afterwards must be poison.
      std::memset(stored, kPoison, plane.row_bytes);
    }
  }
  if (bad_rows == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(SideName(side), " ", kPlaneNames[static_cast<int>(kind)],
                   ": ", bad_rows, " rows differ, first ", first));
}

absl::Status PagedCache::CheckStored(const CaseSide& k, const CaseSide& v,
                                     absl::Span<const int64_t> slots) const {
  for (PlaneKind kind : kPlanes) {
    std::vector<uint8_t> image;
    for (CacheSide side : kSides) {
      const TargetBuffer& buffer = Buffer(side, kind);
      const bool key = side == CacheSide::kKey;
      // An interleaved buffer is read once and checked for both sides.
      if (key || !geometry_.interleaved) {
        image.resize(buffer.bytes());
        RETURN_IF_ERROR(buffer.CopyToHost(image.data(), image.size()));
      }
      RETURN_IF_ERROR(CheckPlane(side, kind, key ? k : v, slots, image));
      if (key && geometry_.interleaved) continue;
      for (size_t i = 0; i < image.size(); ++i) {
        if (image[i] == kPoison) continue;
        return absl::DataLossError(
            absl::StrCat(SideName(side), " ",
                         kPlaneNames[static_cast<int>(kind)], ": byte ", i,
                         " of the buffer belongs to no stored row and was "
                         "written: 0x",
                         absl::Hex(image[i])));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace kvforge
