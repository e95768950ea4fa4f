// Finds accesses of a block's shared memory that nothing orders: a race on a
// GPU even where the fibers happened to run in an order that hides it.
//
// Two accesses of a byte by different threads, one of them a write, are ordered
// if a BlockSync lies between them, a WarpSync of the warp that both belong to,
// a PartSync of both their warps, or an arrival at an mbarrier behind the first
// and a wait for the end of that phase in front of the second. Other warp
// operations order nothing. An asynchronous copy writes its bytes from its
// issue to the wait that lands it; only then, and after a barrier for other
// threads, may they be read.
//
// A product of a warpgroup reads what its warps know to come before, if whoever
// wrote it has fenced it since (or it came by a tensor copy).
//
// Time is a count of such events. A warp knows of every other one up to which
// time its accesses come before its own; what one lane learns by a wait counts
// for its warp.
#ifndef KVFORGE_RUNTIME_HOST_SHARED_ORDER_H_
#define KVFORGE_RUNTIME_HOST_SHARED_ORDER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace kvforge {

class SharedOrder {
 public:
  // By warp, and last for tensor copies: their accesses before that time have
  // come before.
  using Clock = std::vector<uint64_t>;

  SharedOrder(int shared_bytes, int warps);

  // Nothing has been written yet.
  void StartBlock();
  void BlockSynced() { block_synced_ = ++now_; }
  void WarpSynced(int warp) { warp_synced_[warp] = ++now_; }
  // All threads of the first `warps` warps.
  void PartSynced(int warps);
  // What the thread wrote so far may be read by products.
  void Fenced(int thread) { fenced_[thread] = ++now_; }

  // What comes before an event that threads of `warp` bring about, merged into
  // `clock`: all its accesses if all its lanes take part, else those before its
  // last WarpSync.
  void Release(int warp, bool all_lanes, Clock& clock);
  // `warp` goes on after an event that comes after `clock`.
  void Acquire(int warp, const Clock& clock);

  // Each checks the `bytes` bytes from arena offset `offset` against what came
  // before, then records the access; false: fault() says what is wrong.
  bool Read(int thread, uint32_t offset, uint32_t bytes);
  bool Write(int thread, uint32_t offset, uint32_t bytes);
  // A product's read, for the warp of `thread`.
  bool ReadAsync(int thread, uint32_t offset, uint32_t bytes);
  bool IssueCopy(int thread, uint32_t offset, uint32_t bytes);
  // The copy was checked when it was issued; now its bytes are there, as if the
  // thread had written them now, or for a copy that an mbarrier landed, when it
  // issued it.
  void LandCopy(int thread, uint32_t offset, uint32_t bytes);
  void LandCopyAtBarrier(uint32_t offset, uint32_t bytes);
  // Likewise of a tensor copy, which no thread's arrival stands for: it comes
  // before what `clock`, of the barrier it counted at, comes before.
  void LandTensorCopy(uint32_t offset, uint32_t bytes, Clock& clock);

  // What the last check found, with what to do.
  const std::string& fault() const { return fault_; }

 private:
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kSeveralWarps = -2;
  // Readers of one warp: kWarpReaders - warp.
  static constexpr int32_t kWarpReaders = -3;

  // What last happened to one byte.
  struct Byte {
    uint64_t write = 0;       // times
    uint64_t read = 0;        // of the last reader
    int32_t writer = kNone;   // thread
    int32_t reader = kNone;   // thread, or one of the codes above
    int32_t readers = kNone;  // place of its warps' times in read_times_
    bool in_flight = false;   // an asynchronous copy writes it
  };

  // The writer of what tensor copies write, as if it were a further warp's.
  int engine() const { return static_cast<int>(known_.size()) * 32; }
  std::string Name(int thread) const;
  bool Written(const Byte& byte) const {
    return byte.writer != kNone && byte.write >= block_start_;
  }
  bool SinceBlockSync(uint64_t time) const { return time >= block_synced_; }
  // Whether an access of `warp` at `then` comes before one of `thread` now.
  bool Before(uint64_t then, int warp, int thread) const;
  bool CheckWrite(int thread, uint32_t offset, uint32_t bytes);
  bool Fault(std::string fault);
  // Times of a byte that several warps read, made where it has none yet.
  uint64_t* ReadTimes(Byte& byte);
  void Record(int thread, uint32_t offset, uint32_t bytes, bool in_flight);

  uint64_t now_ = 1;  // counts on from block to block
  uint64_t block_start_ = 1;
  uint64_t block_synced_ = 1;
  Clock warp_synced_;
  Clock fenced_;              // by thread
  std::vector<Clock> known_;  // by warp
  std::vector<Byte> bytes_;
  // Last reads by warp of bytes that several have read, a row a byte; 0: none.
  std::vector<uint64_t> read_times_;
  std::string fault_;
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_HOST_SHARED_ORDER_H_
