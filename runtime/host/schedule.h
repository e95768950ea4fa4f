// Which fiber of a block runs next: a random one of those that can.
#ifndef KVFORGE_RUNTIME_HOST_SCHEDULE_H_
#define KVFORGE_RUNTIME_HOST_SCHEDULE_H_

#include <bit>
#include <cstdint>

namespace kvforge {

inline constexpr int kWarpLanes = 32;
inline constexpr int kMaxWarps = 32;

// splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

class Schedule {
 public:
  static constexpr int kNone = -1;

  // No fiber is ready. How often a warp is left while it could go on differs
  // between blocks: from after each operation to only when it must wait, so
  // that warps run both in step and far apart.
  void Reset(uint64_t seed, int warps) {
    warps_ = warps;
    random_ = Random(seed);
    ready_warps_ = 0;
    for (uint32_t& lanes : ready_lanes_) lanes = 0;
    warp_ = 0;
    constexpr uint32_t kStay[] = {0, 7, 63, ~0u};
    stay_ = kStay[random_.Next() % 4];
  }

  void SetReady(int warp, uint32_t lanes) {
    ready_lanes_[warp] |= lanes;
    ready_warps_ |= 1u << warp;
  }

  // Takes a ready fiber off: warp * 32 + lane, or kNone.
  int Take() {
    if (ready_warps_ == 0) return kNone;
    const uint64_t random = random_.Next();
    const uint32_t draw = static_cast<uint32_t>(random >> 10);
    if ((ready_warps_ >> warp_ & 1) == 0 || (draw & stay_) == 0) {
      // Scaled to the warps there are: a draw beyond them would be warp 0.
      const uint64_t from = (random >> 48) * warps_ >> 16;
      warp_ = Pick(ready_warps_, static_cast<int>(from));
    }
    uint32_t& lanes = ready_lanes_[warp_];
    const int lane = Pick(lanes, random & 31);
    lanes &= ~(1u << lane);
    if (lanes == 0) ready_warps_ &= ~(1u << warp_);
    return warp_ * kWarpLanes + lane;
  }

 private:
  // The first set bit of a non-zero mask at or after `from`, cyclically.
  static int Pick(uint32_t mask, int from) {
    return (std::countr_zero(std::rotr(mask, from)) + from) & 31;
  }

  Random random_{0};
  int warps_ = 0;
  uint32_t stay_ = 0;         // the warp is left if the draw & stay_ is 0
  uint32_t ready_warps_ = 0;  // warps with a ready lane
  uint32_t ready_lanes_[kMaxWarps] = {};
  int warp_ = 0;  // of the fiber that runs
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_HOST_SCHEDULE_H_
