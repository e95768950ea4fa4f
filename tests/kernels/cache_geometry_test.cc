#include "kernels/cache_geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvforge {
namespace {

CacheGeometry Geometry(const char* k, const char* v, int head_dim,
                       int v_head_dim, int heads, int page_size) {
  CacheGeometry geometry;
  geometry.k_format = *FindFormat(k);
  geometry.v_format = *FindFormat(v);
  geometry.head_dim = head_dim;
  geometry.v_head_dim = v_head_dim;
  geometry.num_kv_heads = heads;
  geometry.page_size = page_size;
  return geometry;
}

struct BytesCase {
  const char* k;
  const char* v;
  int head_dim, v_head_dim, heads, page_size;
  int64_t token_bytes;
};

class CacheBytes : public ::testing::TestWithParam<BytesCase> {};

TEST_P(CacheBytes, CountCodesAndSidecars) {
  const BytesCase& c = GetParam();
  const CacheGeometry geometry =
      Geometry(c.k, c.v, c.head_dim, c.v_head_dim, c.heads, c.page_size);
  EXPECT_TRUE(CheckGeometry(geometry).ok()) << CheckGeometry(geometry);
  EXPECT_EQ(CacheBytesPerToken(geometry), c.token_bytes);
  EXPECT_EQ(CacheBytesPerPage(geometry), c.token_bytes * c.page_size);
}

INSTANTIATE_TEST_SUITE_P(
    ByHand, CacheBytes,
    ::testing::Values(
        BytesCase{"bf16", "bf16", 128, 128, 8, 16, 4096},          // 8*2*256
        BytesCase{"e4m3_row", "e4m3_row", 128, 128, 8, 16, 2112},  // 8*2*132
        BytesCase{"nvfp4_row", "nvfp4_row", 128, 128, 8, 16,
                  1216},  // 8 * 2 * (64 + 8 + 4)
        BytesCase{"e4m3_tensor", "e4m3_tensor", 80, 80, 3, 48, 480},
        BytesCase{"e4m3_row", "e4m3_row", 192, 128, 2, 1,
                  656},  // 2 * (196 + 132)
        BytesCase{"e4m3_row", "nvfp4_row", 64, 64, 1, 64,
                  108}));  // 68 + 32 + 4 + 4

TEST(CacheGeometry, PoolHoldsWholePages) {
  CacheGeometry geometry =
      Geometry("e4m3_row", "e4m3_row", 128, 128, 8, 16);  // 33792 a page
  EXPECT_EQ(PagesThatFit(geometry, 33791), 0);
  EXPECT_EQ(PagesThatFit(geometry, 33792), 1);
  EXPECT_EQ(TokensThatFit(geometry, 33792 * 3 - 1), 32);
  EXPECT_EQ(TokensThatFit(geometry, -1), 0);
  // Four planes of 64 bytes of padding; two where K and V share theirs.
  geometry.page_pad_bytes = 64;
  EXPECT_EQ(CacheBytesPerPage(geometry), 33792 + 4 * 64);
  geometry.interleaved = true;
  EXPECT_EQ(CacheBytesPerPage(geometry), 33792 + 2 * 64);
}

TEST(CacheGeometry, StridesOfNhdAndHnd) {
  CacheGeometry geometry = Geometry("e4m3_row", "e4m3_row", 64, 64, 3, 16);
  Plane codes = PlaneOf(geometry, CacheSide::kKey, PlaneKind::kCodes);
  EXPECT_EQ(codes.offset, 0);
  EXPECT_EQ(codes.head_stride, 64);
  EXPECT_EQ(codes.slot_stride, 192);   // 3 * 64
  EXPECT_EQ(codes.page_stride, 3072);  // 16 * 192
  Plane scales = PlaneOf(geometry, CacheSide::kValue, PlaneKind::kRowScale);
  EXPECT_EQ(scales.head_stride, 4);
  EXPECT_EQ(scales.slot_stride, 12);
  EXPECT_EQ(scales.page_stride, 192);
  geometry.order = SlotOrder::kHnd;
  codes = PlaneOf(geometry, CacheSide::kKey, PlaneKind::kCodes);
  EXPECT_EQ(codes.slot_stride, 64);
  EXPECT_EQ(codes.head_stride, 1024);  // 16 * 64
  EXPECT_EQ(codes.page_stride, 3072);
}

TEST(CacheGeometry, InterleavedAndPaddedViews) {
  // K rows of 192 bytes, V rows of 128, as heads of one page of 4 tokens.
  CacheGeometry geometry = Geometry("e4m3_row", "e4m3_tensor", 192, 128, 2, 4);
  geometry.interleaved = true;
  geometry.page_pad_bytes = 32;
  geometry.first_page_byte = 256;
  const Plane k = PlaneOf(geometry, CacheSide::kKey, PlaneKind::kCodes);
  const Plane v = PlaneOf(geometry, CacheSide::kValue, PlaneKind::kCodes);
  EXPECT_EQ(k.offset, 256);
  EXPECT_EQ(v.offset, 256 + 1536);  // behind 4 * 2 * 192
  EXPECT_EQ(k.page_stride, 1536 + 1024 + 32);
  EXPECT_EQ(v.page_stride, k.page_stride);
  EXPECT_EQ(v.slot_stride, 256);
  EXPECT_EQ(PlaneBufferBytes(geometry, CacheSide::kKey, PlaneKind::kCodes, 3),
            256 + 3 * 2592);
  // Only K has row scales, whichever side one asks for.
  EXPECT_EQ(
      PlaneBufferBytes(geometry, CacheSide::kValue, PlaneKind::kRowScale, 2),
      256 + 2 * (4 * 2 * 4 + 32));
  unsigned char buffer[4096];
  const CacheView view =
      MakeCacheView(geometry, CacheSide::kValue, buffer, buffer, nullptr);
  EXPECT_EQ(view.codes.base, buffer + 256 + 1536);
  EXPECT_EQ(view.row_scale.base, nullptr);
  EXPECT_EQ(view.block_scale.base, nullptr);
}

TEST(CacheGeometry, RefusesWhatItCannotSize) {
  CacheGeometry geometry = Geometry("bf16", "bf16", 128, 128, 8, 0);
  EXPECT_EQ(CheckGeometry(geometry).message(),
            "cache geometry: page_size = 0 is out of range; it must be 1 or "
            "more; set it from the model's configuration");
  geometry.page_size = 16;
  geometry.page_pad_bytes = -4;
  EXPECT_EQ(CheckGeometry(geometry).message(),
            "cache geometry: page_pad_bytes = -4, first_page_byte = 0 is out "
            "of range; both must be 0 or more; pass 0 for a dense cache");
  geometry.page_pad_bytes = 0;
  geometry.v_format = nullptr;
  EXPECT_EQ(CheckGeometry(geometry).message(),
            "cache geometry: v_format is null; it must be a row of the format "
            "table; look it up by its name");
}

TEST(CacheGeometry, RefusesThePageSizesThatASpecRefuses) {
  CacheGeometry geometry = Geometry("bf16", "bf16", 128, 128, 8, kMaxPageSize);
  EXPECT_TRUE(CheckGeometry(geometry).ok()) << CheckGeometry(geometry);
  EXPECT_TRUE(ParseSpec("store/bf16/d128/g1/page65536/bf16").ok());
  geometry.page_size = kMaxPageSize + 1;
  EXPECT_EQ(CheckGeometry(geometry).message(),
            "cache geometry: page_size = 65537 is out of range; 1 to 65536 "
            "tokens are supported, as in a SPEC; choose a page size in this "
            "range");
  EXPECT_FALSE(ParseSpec("store/bf16/d128/g1/page65537/bf16").ok());
}

TEST(CacheGeometry, RefusesPagesWhoseBytesOverflow) {
  CacheGeometry geometry = Geometry("bf16", "bf16", 128, 128, 1 << 30, 65536);
  EXPECT_EQ(CheckGeometry(geometry).message(),
            "cache geometry: a page of 65536 tokens and 1073741824 kv "
            "heads, page_pad_bytes = 0, first_page_byte = 0; up to 4294967296 "
            "rows a page and 17592186044416 bytes of padding are supported; "
            "set them from the model's configuration");
}

}  // namespace
}  // namespace kvforge
