// m16n8k16 on the fragments of the 32 lanes of a warp.
#ifndef KVFORGE_RUNTIME_HOST_MMA_H_
#define KVFORGE_RUNTIME_HOST_MMA_H_

#include <cstdint>

namespace kvforge {

enum class MmaElement { kF16, kBf16 };

// d += a b, f32 sums in the order of k. operands[lane]: words 0 to 3 d (f32),
// 4 to 7 a, 8 and 9 b, as arch/sm80.cuh lays them out. The same bits with and
// without the vector units that it uses where they are, as long as no product
// of two bf16 leaves the range of f32.
void WarpMma(MmaElement element, uint32_t* const (&operands)[32]);

// `count` elements, as pairs, to f32: exact.
void WidenPairs(MmaElement element, const uint32_t* pairs, float* out,
                int count);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_HOST_MMA_H_
