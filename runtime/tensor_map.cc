#include "runtime/tensor_map.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "templates/arch/host_thread.h"

namespace kvforge {
namespace {

// CUtensorMap enumerators.
constexpr int kUint8 = 0;
constexpr int kNoInterleave = 0;
constexpr int kNoSwizzle = 0;
constexpr int kSwizzle64 = 2;
constexpr int kSwizzle128 = 3;
constexpr int kPromotion128 = 2;
constexpr int kFillZeros = 0;
constexpr int kRank = 5;

}  // namespace

absl::Status EncodeTensorMap(const DriverApi& api, const TensorBox& box,
                             TensorMap& map) {
  unsigned long long sizes[kRank];
  for (int i = 0; i < kRank; ++i) sizes[i] = box.sizes[i];
  constexpr unsigned kElementStrides[kRank] = {1, 1, 1, 1, 1};
  const int swizzle = box.swizzle_bytes == 128  ? kSwizzle128
                      : box.swizzle_bytes == 64 ? kSwizzle64
                                                : kNoSwizzle;
  return api.Check(api.TensorMapEncodeTiled(
                       &map, kUint8, kRank, const_cast<void*>(box.base), sizes,
                       box.strides, box.box, kElementStrides, kNoInterleave,
                       swizzle, kPromotion128, kFillZeros),
                   "cuTensorMapEncodeTiled");
}

void EncodeHostTensorMap(const TensorBox& box, TensorMap& map) {
  HostTensorMap host = {};
  host.base = static_cast<const unsigned char*>(box.base);
  std::copy(std::begin(box.strides), std::end(box.strides), host.strides);
  std::copy(std::begin(box.sizes), std::end(box.sizes), host.sizes);
  std::copy(std::begin(box.box), std::end(box.box), host.box);
  host.swizzle_bytes = box.swizzle_bytes;
  static_assert(sizeof(host) <= sizeof(map));
  std::memcpy(&map, &host, sizeof(host));
}

}  // namespace kvforge
