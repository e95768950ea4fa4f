// The products of a warpgroup (arch/sm90a.cuh) that one of its warps has asked
// for and not waited for. They run as late as a wait allows, in order; until
// then their accumulators hold NaN, so that a use ahead of the wait shows.
#ifndef KVFORGE_RUNTIME_HOST_WARP_PRODUCTS_H_
#define KVFORGE_RUNTIME_HOST_WARP_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "arch/host_thread.h"
#include "runtime/host/mma.h"

namespace kvforge {

// The 16 bytes of an operand at an address of shared memory; null: none are.
using SharedChunk = absl::FunctionRef<const unsigned char*(uint32_t address)>;

class WarpProducts {
 public:
  void Begin() { begun_ = true; }
  // Whether WgmmaBegin came since the last wait.
  bool begun() const { return begun_; }
  // `products`: of the 32 lanes, alike but for d and a.
  void Add(const HostProduct* const (&products)[32]);
  void Commit() { group_ends_.push_back(waiting_.size()); }
  // Runs every group but the last `pending` for warp `warp` of its warpgroup;
  // false: an operand was not there.
  bool Wait(size_t pending, int warp, SharedChunk chunk);

  size_t not_done() const { return waiting_.size(); }
  uint64_t asked() const { return asked_; }

 private:
  struct Product {
    HostProduct request;  // of lane 0
    uint32_t a[32][4];
    float* accumulators;  // key of accumulators_
  };
  struct Accumulators {
    float* lanes[32];
    std::vector<float> d;  // [16 rows, columns]
    int users = 0;         // products that wait
  };

  bool Run(const Product& product, int warp, SharedChunk chunk);

  bool begun_ = false;
  uint64_t asked_ = 0;
  std::deque<Product> waiting_;
  std::vector<size_t> group_ends_;  // products in and before each open group
  std::map<float*, Accumulators> accumulators_;  // by lane 0's d
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_HOST_WARP_PRODUCTS_H_
