// Random contents for gigabytes of a target's memory, made in milliseconds.
#ifndef KVFORGE_TOOLS_BENCH_RANDOM_FILL_H_
#define KVFORGE_TOOLS_BENCH_RANDOM_FILL_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/target_memory.h"

namespace kvforge::bench {

// Fills `buffer` with `pattern` (not empty) over and over, the last time a part
// of it. Waits until it is done.
absl::Status FillRepeating(const Engine& engine, TargetBuffer& buffer,
                           absl::Span<const uint8_t> pattern);

// The same with 16 MiB of random bits.
absl::Status FillRandom(const Engine& engine, TargetBuffer& buffer);

// Normally distributed values as bf16.
std::vector<uint16_t> NormalBf16(int64_t count, uint64_t seed);

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_RANDOM_FILL_H_
