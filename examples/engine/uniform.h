// Random numbers that are the same on every machine.
// Source  SplitMix64, https://prng.di.unimi.it/splitmix64.c
#ifndef KVFORGE_EXAMPLES_ENGINE_UNIFORM_H_
#define KVFORGE_EXAMPLES_ENGINE_UNIFORM_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvforge::example {

class Uniform {
 public:
  explicit Uniform(uint64_t seed) : state_(seed) {}

  // Uniform numbers around 0.
  std::vector<float> Draw(size_t count, float variance) {
    const float range = std::sqrt(3 * variance);
    std::vector<float> values(count);
    for (float& value : values) {
      // 24 bits, which a float holds exactly.
      value = range * (static_cast<float>(Next() >> 40) * 0x1p-23f - 1);
    }
    return values;
  }

  // Uniform in 0 to `end` - 1, for ends far below 2^64.
  int Below(int end) { return static_cast<int>(Next() % end); }

 private:
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

}  // namespace kvforge::example

#endif  // KVFORGE_EXAMPLES_ENGINE_UNIFORM_H_
