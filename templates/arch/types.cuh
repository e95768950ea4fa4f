// Integer and vector types of the device templates; no CUDA header is needed.
#ifndef KVFORGE_TEMPLATES_ARCH_TYPES_CUH_
#define KVFORGE_TEMPLATES_ARCH_TYPES_CUH_

namespace kvforge {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

struct alignas(8) U32x2 {
  u32 v[2];
};
struct alignas(16) U32x4 {
  u32 v[4];
};

static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8);
static_assert(sizeof(U32x2) == 8 && sizeof(U32x4) == 16);

}  // namespace kvforge

#endif  // KVFORGE_TEMPLATES_ARCH_TYPES_CUH_
