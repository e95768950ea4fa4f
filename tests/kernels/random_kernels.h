// The kernels of the drawn cases: a fixed list, so that they can be compiled
// before a machine that has no compiler runs them. Which kernels there are
// follows from one constant seed; the cases drawn over them from another.
#ifndef KVFORGE_TESTS_KERNELS_RANDOM_KERNELS_H_
#define KVFORGE_TESTS_KERNELS_RANDOM_KERNELS_H_

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "tools/case_generator.h"

namespace kvforge {

// Tiles of warpgroups come on top.
inline constexpr int kMostHostKernels = 135;
inline constexpr int kMostGpuKernels = 300;

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  int Between(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }
  bool OneIn(int n) { return Between(1, n) == 1; }
  template <typename T>
  T Of(std::initializer_list<T> values) {
    return values.begin()[Between(0, static_cast<int>(values.size()) - 1)];
  }

 private:
  std::mt19937_64 random_;
};

// What decides the kernels of a family: store, and decode with its merge or
// extend. Lengths, seeds, scales and the mask's bits are the case's.
struct KernelFamily {
  CaseOptions options;
  bool custom_mask = false;
  bool hnd = false;
  // Tokens of the longest query: above kMaxDecodeTokens extend alone has it.
  int q_max = 1;
  std::string gpu;  // whose text; the GPU's own on a GPU

  // The families' SPECs: store, extend and, where it fits, decode and merge.
  std::vector<std::string> Specs() const;
};

// As many families as have `most_kernels` kernels at most, each served by its
// GPU. `gpus`: taken in turn.
std::vector<KernelFamily> DrawFamilies(const std::vector<std::string>& gpus,
                                       int most_kernels);

}  // namespace kvforge

#endif  // KVFORGE_TESTS_KERNELS_RANDOM_KERNELS_H_
