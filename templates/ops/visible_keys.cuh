// Which keys a query row sees.
//
// Query token t of m stands at position i = kv_len - m + t. Key j is visible if
// j < kv_len, and j <= i where causal, and j > i - window where there is one.
#ifndef KVFORGE_TEMPLATES_OPS_VISIBLE_KEYS_CUH_
#define KVFORGE_TEMPLATES_OPS_VISIBLE_KEYS_CUH_

#include "arch/select.cuh"

namespace kvforge::ops {

// Keys [first, end); empty if first >= end.
struct KeyRange {
  int first;
  int end;

  // Leaves the keys that are in both.
  __device__ __forceinline__ void Narrow(KeyRange other) {
    if (other.first > first) first = other.first;
    if (other.end < end) end = other.end;
  }
};

template <bool kCausal, int kWindow>
__device__ __forceinline__ KeyRange VisibleKeys(int kv_len, int q_len,
                                                int token) {
  const int position = kv_len - q_len + token;
  KeyRange range = {0, kv_len};
  if (kCausal && position + 1 < range.end) range.end = position + 1;
  // Neither side can overflow: a window may be as large as an int.
  if (kWindow > 0 && position >= kWindow) range.first = position - kWindow + 1;
  if (range.end < 0) range.end = 0;
  return range;
}

// The keys that some token of first_token .. last_token sees.
template <bool kCausal, int kWindow>
__device__ __forceinline__ KeyRange VisibleKeysOfTokens(int kv_len, int q_len,
                                                        int first_token,
                                                        int last_token) {
  return {VisibleKeys<kCausal, kWindow>(kv_len, q_len, first_token).first,
          VisibleKeys<kCausal, kWindow>(kv_len, q_len, last_token).end};
}

}  // namespace kvforge::ops

#endif  // KVFORGE_TEMPLATES_OPS_VISIBLE_KEYS_CUH_
