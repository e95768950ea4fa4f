// Finds accesses of a block's shared memory that nothing orders: a race on a
// GPU even where the fibers happened to run in an order that hides it.
//
// Two accesses of a byte by different threads, one of them a write, are ordered
// if a BlockSync lies between them, or a WarpSync of the warp that both belong
// to. Other warp operations order nothing. An asynchronous copy writes its
// bytes from its issue to the wait that lands it; only then, and after a
// barrier for other threads, may they be read.
#ifndef KVFORGE_RUNTIME_HOST_SHARED_ORDER_H_
#define KVFORGE_RUNTIME_HOST_SHARED_ORDER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace kvforge {

class SharedOrder {
 public:
  SharedOrder(int shared_bytes, int warps);

  // Nothing has been written yet.
  void StartBlock();
  void BlockSynced() { ++block_epoch_; }
  void WarpSynced(int warp) { ++warp_epochs_[warp]; }

  // Each checks the `bytes` bytes from arena offset `offset` against what came
  // before, then records the access; false: fault() says what is wrong.
  bool Read(int thread, uint32_t offset, uint32_t bytes);
  bool Write(int thread, uint32_t offset, uint32_t bytes);
  bool IssueCopy(int thread, uint32_t offset, uint32_t bytes);
  // The copy was checked when it was issued; now its bytes are there.
  void LandCopy(int thread, uint32_t offset, uint32_t bytes);

  // What the last check found, with what to do.
  const std::string& fault() const { return fault_; }

 private:
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kSeveralWarps = -2;
  // Readers of one warp: kWarpReaders - warp.
  static constexpr int32_t kWarpReaders = -3;

  struct Stamp {
    uint32_t block_epoch = 0;
    uint32_t warp_epoch = 0;  // of the thread's warp
  };
  // What last happened to one byte.
  struct Byte {
    Stamp write;
    Stamp read;
    int32_t writer = kNone;  // thread
    int32_t reader = kNone;  // thread, or one of the codes above
    bool in_flight = false;  // an asynchronous copy writes it
  };

  Stamp Now(int thread) const {
    return {block_epoch_, warp_epochs_[thread / 32]};
  }
  bool Written(const Byte& byte) const {
    return byte.writer != kNone && byte.write.block_epoch >= first_epoch_;
  }
  // Whether an access of `warp` at `then` comes before one of `thread` now.
  bool Before(const Stamp& then, int warp, int thread) const;
  bool CheckWrite(int thread, uint32_t offset, uint32_t bytes);
  bool Fault(std::string fault);
  void Record(int thread, uint32_t offset, uint32_t bytes, bool in_flight);

  uint32_t block_epoch_ = 1;  // counts on from block to block
  uint32_t first_epoch_ = 1;  // of the block that runs
  std::vector<uint32_t> warp_epochs_;
  std::vector<Byte> bytes_;
  std::string fault_;
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_HOST_SHARED_ORDER_H_
