// Which KV blocks a block-sparse layer attends to: block 0, every
// num_kv_heads-th of the others, another phase for each kv head, and the blocks
// of the queries' own segment of 4 blocks, so that the nearest tokens are
// always seen.
//
// All queries of a sequence in a step share one selection, and so lie in one
// segment: the engine ends steps where segments end.
#ifndef KVFORGE_EXAMPLES_ENGINE_BLOCK_SELECTION_H_
#define KVFORGE_EXAMPLES_ENGINE_BLOCK_SELECTION_H_

#include "absl/types/span.h"

namespace kvforge::example {

inline constexpr int kSegmentBlocks = 4;

// Fills `selected`, [num_kv_heads, any number that suffices], for queries at
// `first_position` to `last_position`; -1 where there is no more.
void SelectBlocks(int block_tokens, int num_kv_heads, int first_position,
                  int last_position, absl::Span<int> selected);

}  // namespace kvforge::example

#endif  // KVFORGE_EXAMPLES_ENGINE_BLOCK_SELECTION_H_
