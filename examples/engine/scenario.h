// What the engine is put through: four sequences, two of which begin like the
// first one. The same text comes out either way.
#ifndef KVFORGE_EXAMPLES_ENGINE_SCENARIO_H_
#define KVFORGE_EXAMPLES_ENGINE_SCENARIO_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "examples/engine/mini_engine.h"

namespace kvforge::example {

inline constexpr int kSequences = 4;
inline constexpr int kNewTokens = 24;  // of each sequence

using Texts = std::vector<std::vector<int>>;  // tokens, by sequence

Texts Prompts(int vocab_size, uint64_t seed);

// All prompts at once, a token at a time.
absl::Status RunPlainly(const Texts& prompts, const EngineHooks& hooks,
                        MiniEngine& engine);

// The first prompt alone; then two more, of which one shares its prefix; then
// with drafts; the cache rebuilt at `rebuilt_bytes` in the middle; and when all
// are done the last one, which shares the first one's prefix, too.
absl::Status RunEverything(const Texts& prompts, const EngineHooks& hooks,
                           int64_t rebuilt_bytes, MiniEngine& engine);

// Drafts from `texts`, the sequences as they will be: three tokens at a time,
// every fifth of a sequence's tokens wrong.
std::vector<int> Draft(const Texts& texts, int vocab_size, int sequence,
                       absl::Span<const int> tokens);

}  // namespace kvforge::example

#endif  // KVFORGE_EXAMPLES_ENGINE_SCENARIO_H_
