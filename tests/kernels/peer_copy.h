// Copies from one GPU's memory to another's, for tests: what an engine of
// several GPUs does between kvforge's launches. Both libraries are opened by
// name.
#ifndef KVFORGE_TESTS_KERNELS_PEER_COPY_H_
#define KVFORGE_TESTS_KERNELS_PEER_COPY_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/driver_api.h"

namespace kvforge {

// Memory of a device.
struct PeerBytes {
  const Device& device;
  void* data;
};

// cuMemcpyPeer; waits until it is done.
absl::Status CopyToPeer(PeerBytes to, PeerBytes from, size_t bytes);

// One process, one communicator a device.
class Nccl {
 public:
  // kUnavailable where there is no libnccl.so.2.
  static absl::StatusOr<std::unique_ptr<Nccl>> Open(const Device& first,
                                                    const Device& second);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  // Between these, sends and receives of both devices are put together.
  absl::Status Begin() const;
  absl::Status End() const;
  // Queues bytes of the second device's memory to the first's, behind what the
  // streams have.
  absl::Status SecondToFirst(void* to, CuStream first_stream, const void* from,
                             CuStream second_stream, size_t bytes) const;

 private:
  struct Calls;
  explicit Nccl(std::unique_ptr<Calls> calls);

  std::unique_ptr<Calls> calls_;
  struct KvforgeNcclCommOpaque* communicators_[2] = {};
};

}  // namespace kvforge

#endif  // KVFORGE_TESTS_KERNELS_PEER_COPY_H_
