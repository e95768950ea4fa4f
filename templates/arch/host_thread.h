// What one fiber of the host target sees of its launch, and the functions its
// code calls: the contract between arch/host.cuh and runtime/host. Plain types
// only; both sides include it.
//
// A fiber runs on a stack of kHostStackBytes, aligned to its size, so that
// device code finds its HostThread from its own frame address, without
// thread-local storage. Neighbouring stacks start at different offsets: frames
// that were equal modulo the stack size would fight for the same cache sets.
#ifndef KVFORGE_TEMPLATES_ARCH_HOST_THREAD_H_
#define KVFORGE_TEMPLATES_ARCH_HOST_THREAD_H_

namespace kvforge {

inline constexpr unsigned long kHostStackBytes = 512 * 1024;
inline constexpr unsigned long kHostThreadBytes = 128;
inline constexpr unsigned long kHostStackColors = 128;
inline constexpr unsigned long kHostColorBytes = 17 * 64;  // odd cache lines

// Address of the first byte of the arena; 0 is no shared address.
inline constexpr unsigned kHostSharedBase = 1024;

struct HostThread {
  unsigned char* shared;       // the block's arena
  unsigned shared_bytes;       // size of the arena
  unsigned shared_high_water;  // one past the highest arena byte accessed
  int thread_index;
  int block_threads;
  long long block_index;
  long long block_count;
};

static_assert(sizeof(HostThread) <= kHostThreadBytes);

// Address of the HostThread of the fiber whose stack holds `address`. The
// stack grows down from there.
constexpr unsigned long HostThreadAddress(unsigned long address) {
  const unsigned long stack = address / kHostStackBytes;
  return (stack + 1) * kHostStackBytes - kHostThreadBytes -
         stack % kHostStackColors * kHostColorBytes;
}

// What a TensorMap holds on the host target: an array of bytes of five
// dimensions, the innermost first, and the box of one copy. In shared memory a
// box lies densely in that order; with a swizzle of 128 (64) bytes, bits 4 to 6
// (4 and 5) of an address are combined with bits 7 to 9 (7 and 8).
struct HostTensorMap {
  const unsigned char* base;
  unsigned long long strides[4];  // of dimensions 1 to 4, bytes
  unsigned sizes[5];
  unsigned box[5];
  int swizzle_bytes;  // 0, 64 or 128
};

enum HostElement : int { kHostF16, kHostBf16, kHostE4m3 };

// One warpgroup product as a lane asks for it; arch/sm90a.cuh says what it is.
struct HostProduct {
  float* d;           // columns / 2 accumulators of this lane
  const unsigned* a;  // registers, or null: a_matrix
  unsigned long long a_matrix;
  unsigned long long b_matrix;
  int columns;
  HostElement element;
  bool by_row;  // of b
  bool keep;
};

// Operations that all 32 lanes of a warp take part in. `operands` of
// kvforge_host_collective, 32-bit words of the calling lane:
//   kWarpSync                   none
//   kShuffleXor, kShuffleFrom   [0] value, then result; [1] mask or lane
//   kWarpAny, kWarpAll          [0] 0 or 1, then result
//   kMmaF16, kMmaBf16           [0..3] d (f32), then result; [4..7] a; [8..9] b
//   kLdMatrix4, kLdMatrix4Trans [0] row address; then [0..3] result
//   kMoveMatrix                 [0] fragment, then result
//   kWgmma                      a HostProduct
//   kWgmmaBegin, kWgmmaCommit   none
//   kWgmmaWait                  [0] groups that may stay under way
enum HostCollective : int {
  kWarpSync,
  kShuffleXor,
  kShuffleFrom,
  kWarpAny,
  kWarpAll,
  kMmaF16,
  kMmaBf16,
  kLdMatrix4,
  kLdMatrix4Trans,
  kMoveMatrix,
  kWgmma,
  kWgmmaBegin,
  kWgmmaCommit,
  kWgmmaWait,
};

// Accesses that device code checks itself and reports when they are wrong.
enum HostAccess : int {
  kLoadGlobal,
  kStoreGlobal,
  kLoadShared,
  kStoreShared,
};

}  // namespace kvforge

extern "C" {

// Every access of shared memory within bounds, before it is done: finds reads
// of what nothing wrote and accesses that no barrier orders. `offset` is into
// the arena; `access` is kLoadShared or kStoreShared.
void kvforge_host_shared_access(kvforge::HostThread* thread,
                                kvforge::HostAccess access, unsigned offset,
                                int bytes);

void kvforge_host_block_sync(kvforge::HostThread* thread);
void kvforge_host_part_sync(kvforge::HostThread* thread, int threads);
// `wait`: goes on when all have come. Whether `vote` of one of them was true.
bool kvforge_host_named_sync(kvforge::HostThread* thread, int number,
                             int threads, bool wait, bool vote);
void kvforge_host_collective(kvforge::HostThread* thread,
                             kvforge::HostCollective op, unsigned* operands);

// `bytes` is 4, 8 or 16. The copy lands in the wait that covers its group; the
// source is read at that moment.
void kvforge_host_cp_async(kvforge::HostThread* thread, unsigned shared,
                           const void* global, int bytes, bool valid);
void kvforge_host_cp_async_commit(kvforge::HostThread* thread);
void kvforge_host_cp_async_wait(kvforge::HostThread* thread, int pending);

// Barriers at shared addresses. With `with_copies` the copies that the thread
// has under way land when the phase ends, no earlier.
void kvforge_host_mbarrier_init(kvforge::HostThread* thread, unsigned barrier,
                                int count);
void kvforge_host_mbarrier_arrive(kvforge::HostThread* thread, unsigned barrier,
                                  bool with_copies);
void kvforge_host_mbarrier_wait(kvforge::HostThread* thread, unsigned barrier,
                                unsigned parity);

// A phase ends only when as many bytes as were expected have been copied.
void kvforge_host_mbarrier_expect(kvforge::HostThread* thread, unsigned barrier,
                                  unsigned bytes);
// `at`: five coordinates. The copy lands when the barrier's phase ends.
void kvforge_host_tensor_copy(kvforge::HostThread* thread, unsigned shared,
                              const kvforge::HostTensorMap* map, const int* at,
                              unsigned barrier);
// The bytes count at the barrier; the copy lands when its phase ends.
void kvforge_host_bulk_copy(kvforge::HostThread* thread, unsigned shared,
                            const void* global, unsigned bytes,
                            unsigned barrier);
// Products may read what the thread wrote before, once a barrier says so.
void kvforge_host_async_fence(kvforge::HostThread* thread);

// Ends the launch with an error that says what is wrong with the access.
[[noreturn]] void kvforge_host_bad_access(kvforge::HostThread* thread,
                                          kvforge::HostAccess access,
                                          unsigned long long address,
                                          int bytes);

}  // extern "C"

#endif  // KVFORGE_TEMPLATES_ARCH_HOST_THREAD_H_
