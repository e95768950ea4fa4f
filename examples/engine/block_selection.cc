#include "examples/engine/block_selection.h"

#include <algorithm>
#include <cassert>

namespace kvforge::example {

void SelectBlocks(int block_tokens, int num_kv_heads, int first_position,
                  int last_position, absl::Span<int> selected) {
  const int segment = first_position / block_tokens / kSegmentBlocks;
  const int last_block = last_position / block_tokens;
  assert(last_block / kSegmentBlocks == segment);
  const size_t per_head = selected.size() / num_kv_heads;
  std::fill(selected.begin(), selected.end(), -1);
  for (int head = 0; head < num_kv_heads; ++head) {
    auto next = selected.begin() + head * per_head;
    for (int block = 0; block <= last_block; ++block) {
      if (block == 0 || block / kSegmentBlocks == segment ||
          block % num_kv_heads == head) {
        *next++ = block;
      }
    }
  }
}

}  // namespace kvforge::example
