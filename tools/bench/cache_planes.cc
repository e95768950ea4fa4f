#include "tools/bench/cache_planes.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/case_table.h"

namespace kvforge::bench {
namespace {

constexpr CacheSide kSides[] = {CacheSide::kKey, CacheSide::kValue};
constexpr PlaneKind kKinds[] = {PlaneKind::kCodes, PlaneKind::kRowScale,
                                PlaneKind::kBlockScale};

}  // namespace

CacheGeometry CachePlanes::Geometry(int page_size) const {
  CacheGeometry geometry;
  geometry.k_format = geometry.v_format = format_;
  geometry.head_dim = geometry.v_head_dim = head_dim_;
  geometry.num_kv_heads = kKvHeads;
  geometry.page_size = page_size;
  return geometry;
}

absl::StatusOr<CachePlanes> CachePlanes::Allocate(const Engine& engine,
                                                  const KvFormat& format,
                                                  int head_dim,
                                                  int64_t num_slots) {
  if (format.given_scale == GivenScale::kHead) {
    return absl::UnimplementedError(absl::StrCat(
        "bench: format ", format.name,
        " takes a scale per head; formats with row, block or tensor scales are "
        "supported; choose another case"));
  }
  CachePlanes planes;
  planes.format_ = &format;
  planes.head_dim_ = head_dim;
  planes.num_slots_ = num_slots;
  const CacheGeometry geometry = planes.Geometry(1);
  for (const CacheSide side : kSides) {
    for (const PlaneKind kind : kKinds) {
      ASSIGN_OR_RETURN(
          planes.buffers_[static_cast<int>(side)][static_cast<int>(kind)],
          TargetBuffer::Allocate(
              engine, PlaneBufferBytes(geometry, side, kind, num_slots)));
    }
  }
  return planes;
}

CacheView CachePlanes::View(CacheSide side, int page_size) const {
  const TargetBuffer* buffers = buffers_[static_cast<int>(side)];
  CacheView view = MakeCacheView(Geometry(page_size), side, buffers[0].data(),
                                 buffers[1].data(), buffers[2].data());
  view.scale = kGivenScale;
  return view;
}

absl::Status CachePlanes::Fill(uint8_t value) {
  for (auto& side : buffers_) {
    for (TargetBuffer& buffer : side) RETURN_IF_ERROR(buffer.Fill(value));
  }
  return absl::OkStatus();
}

absl::StatusOr<QuantizedRow> CachePlanes::Read(CacheSide side, int64_t slot,
                                               int head) const {
  QuantizedRow row;
  const TargetBuffer* buffers = buffers_[static_cast<int>(side)];
  const int64_t index = slot * kKvHeads + head;
  row.codes.resize(format_->CodeBytes(head_dim_));
  RETURN_IF_ERROR(buffers[0].CopyToHost(row.codes.data(), row.codes.size(),
                                        index * row.codes.size()));
  if (const int bytes = format_->RowScaleBytes(); bytes > 0) {
    float scales[2] = {0, 0};
    RETURN_IF_ERROR(buffers[1].CopyToHost(scales, bytes, index * bytes));
    row.row_scale = scales[0];
    row.row_min = scales[1];
  }
  if (const int bytes = format_->BlockScaleBytes(head_dim_); bytes > 0) {
    row.block_scales.resize(bytes);
    RETURN_IF_ERROR(
        buffers[2].CopyToHost(row.block_scales.data(), bytes, index * bytes));
  }
  return row;
}

bool SameRow(const QuantizedRow& a, const QuantizedRow& b) {
  return a.codes == b.codes && a.block_scales == b.block_scales &&
         std::memcmp(&a.row_scale, &b.row_scale, sizeof(float)) == 0 &&
         std::memcmp(&a.row_min, &b.row_min, sizeof(float)) == 0;
}

}  // namespace kvforge::bench
