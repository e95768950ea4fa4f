// A custom mask of one sequence: bit t * kv_len + j, low bit of a byte first,
// says whether query token t sees key j. Rows are packed without padding, so a
// row begins at any bit, and the last byte holds what is left.
#ifndef KVFORGE_TEMPLATES_OPS_CUSTOM_MASK_CUH_
#define KVFORGE_TEMPLATES_OPS_CUSTOM_MASK_CUH_

#include "ops/attention_row.cuh"

namespace kvforge::ops {

struct CustomMask {
  const u8* bytes;  // of the sequence
  int q_len;
  int kv_len;

  // Whether `token` sees `key`; both exist.
  __device__ __forceinline__ bool Shows(int token, int key) const {
    const i64 bit = static_cast<i64>(token) * kv_len + key;
    return (arch::LoadGlobal<u8>(bytes + bit / 8) >> bit % 8 & 1) != 0;
  }

  // Which of kKeys (16 or 32) keys from `key` on `token` sees, bit i for key
  // key + i. Bits of keys at kv_len and beyond are anything, but no byte past
  // the row's last is read; from a token or a first key that does not exist
  // none is.
  template <int kKeys>
  __device__ __forceinline__ u32 Row(int token, int key) const {
    if (token >= q_len || key >= kv_len) return 0;
    const i64 row = static_cast<i64>(token) * kv_len;
    const i64 first = (row + key) / 8;
    const i64 last = (row + kv_len - 1) / 8;
    const int shift = static_cast<int>((row + key) % 8);
    u32 result = 0;
#pragma unroll
    for (int i = 0; i <= kKeys / 8; ++i) {
      if (first + i > last) break;
      const u32 byte = arch::LoadGlobal<u8>(bytes + first + i);
      const int at = 8 * i - shift;  // of the byte's low bit
      result |= at < 0 ? byte >> -at : (at < 32 ? byte << at : 0);
    }
    return result;
  }

  // Which of the 16 keys from `key` on some token of first_token .. last_token
  // sees. All lanes of a warp.
  __device__ __forceinline__ u32 Any16(int first_token, int last_token, int key,
                                       int lane) const {
    u32 result = 0;
#pragma unroll 1
    for (int token = first_token + lane; token <= last_token; token += 32) {
      result |= Row<16>(token, key);
    }
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
      result |= arch::ShuffleXor(result, mask);
    }
    return result;
  }
};

// The mask of a sequence; null without one. Reads its facts again, so that a
// caller short of registers can make one where it is needed.
template <bool kCustomMask>
__device__ __forceinline__ CustomMask MaskOf(const AttentionArgs& args,
                                             const Sequence& sequence) {
  if constexpr (!kCustomMask) return {nullptr, 0, 0};
  return {args.custom_mask +
              arch::LoadGlobal<int>(args.mask_indptr + sequence.batch),
          arch::LoadGlobal<int>(args.q_indptr + sequence.batch + 1) -
              sequence.q_start,
          arch::LoadGlobal<int>(args.kv_lens + sequence.batch)};
}

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_CUSTOM_MASK_CUH_
