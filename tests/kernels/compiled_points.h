// Which kernels are compiled to check what they hold: every kernel and format
// at the head_dims asked for on every GPU, or a seeded sample of them.
#ifndef KVFORGE_TESTS_KERNELS_COMPILED_POINTS_H_
#define KVFORGE_TESTS_KERNELS_COMPILED_POINTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/target/target.h"

namespace kvforge {

struct CompiledPoint {
  std::string spec;  // ParseSpec may refuse it: blocks that divide no head_dim
  const GpuTarget* gpu = nullptr;  // into kTargets
};

// (GPU that is served) x (head_dim) x (kernel and format).
std::vector<CompiledPoint> GridPoints();

// Features and known spills on every GPU that is served: part of every sample.
std::vector<CompiledPoint> FixedPoints();

// Fixed points and the grid, each point once.
std::vector<CompiledPoint> AllPoints();

// `count` of AllPoints: the fixed ones, then others drawn by `seed`, the same
// on every machine. At least the fixed ones, at most all.
std::vector<CompiledPoint> SamplePoints(size_t count, uint64_t seed);

// Bytes a thread of the kernel is known to spill on some GPU; these may not
// grow. 0: none.
int KnownSpillBytes(const std::string& spec);

}  // namespace kvforge

#endif  // KVFORGE_TESTS_KERNELS_COMPILED_POINTS_H_
