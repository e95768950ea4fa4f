// A cubin loaded on one device, ready to launch.
#ifndef KVFORGE_RUNTIME_CUDA_MODULE_H_
#define KVFORGE_RUNTIME_CUDA_MODULE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/cuda/cubin_facts.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/driver_api.h"

namespace kvforge {

struct LaunchShape {
  int64_t grid_blocks = 0;  // on x, 0..2^31-1; 0 launches nothing
  int block_threads = 0;
  int dynamic_shared_bytes = 0;
};

// Thread safe. Unloads at the end; no queued work may use it then.
class Module {
 public:
  // Loads at once, never lazily, and allows the kernel `dynamic_shared_bytes`
  // of shared memory on this device. Leaves the caller's context current. Not
  // to be called while this thread captures a stream.
  //
  // Errors  kDataLoss            no whole cubin, or the driver cannot read it:
  //                              discard the cache entry and compile again
  //         kFailedPrecondition  built for another GPU, or newer than the
  //                              driver; says which
  //         kNotFound            no kernel of that name
  //         kResourceExhausted   more shared memory than the device has
  static absl::StatusOr<std::unique_ptr<Module>> Load(DevicePtr device,
                                                      absl::string_view cubin,
                                                      absl::string_view kernel,
                                                      int dynamic_shared_bytes);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Queues one launch of the kernel, which may start under the end of the one
  // before where the cubin has kvforge_overlaps_launches != 0, with its single
  // by-value argument struct and returns without waiting. kInvalidArgument
  // where args_bytes is not the size the kernel was compiled for or the shape
  // is out of range; no driver call is made then.
  absl::Status Launch(const LaunchShape& shape, CuStream stream,
                      const void* args, size_t args_bytes) const;

  // Blocks of this kernel that one SM holds at once.
  absl::StatusOr<int> BlocksPerSm(int block_threads,
                                  int dynamic_shared_bytes) const;

  const CubinFacts& facts() const { return facts_; }
  // kvforge_shared_bytes and kvforge_block_threads of the cubin; -1 where it
  // does not have them.
  int shared_bytes() const { return shared_bytes_; }
  int block_threads() const { return block_threads_; }
  const Device& device() const { return *device_; }

 private:
  explicit Module(DevicePtr device) : device_(std::move(device)) {}

  DevicePtr device_;
  std::string kernel_;
  CuLibrary library_ = nullptr;
  CuFunction function_ = nullptr;
  CubinFacts facts_;
  int shared_bytes_ = -1;
  int block_threads_ = -1;
  int max_dynamic_shared_bytes_ = 0;
  bool overlaps_launches_ = false;
};

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_CUDA_MODULE_H_
