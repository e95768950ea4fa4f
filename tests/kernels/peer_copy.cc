#include "tests/kernels/peer_copy.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr int kNcclUint8 = 1;  // of ncclDataType_t

// A function of a library that is open; null where it has none.
template <typename Function>
void Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

absl::Status CopyToPeer(PeerBytes to, PeerBytes from, size_t bytes) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  int (*copy)(CuDevicePtr, CuContext, CuDevicePtr, CuContext, size_t) = nullptr;
  if (driver != nullptr) Find(driver, "cuMemcpyPeer", copy);
  if (copy == nullptr) {
    return absl::UnavailableError("libcuda.so.1 has no cuMemcpyPeer");
  }
  const ScopedContext context(to.device);
  RETURN_IF_ERROR(context.status());
  RETURN_IF_ERROR(to.device.api().Check(
      copy(reinterpret_cast<CuDevicePtr>(to.data), to.device.context(),
           reinterpret_cast<CuDevicePtr>(from.data), from.device.context(),
           bytes),
      "cuMemcpyPeer"));
  // It may return before the copy is done.
  return to.device.api().Check(to.device.api().CtxSynchronize(),
                               "cuCtxSynchronize");
}

using NcclComm = KvforgeNcclCommOpaque*;

struct Nccl::Calls {
  int (*init_all)(NcclComm*, int, const int*) = nullptr;
  int (*destroy)(NcclComm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, size_t, int, int, NcclComm, CuStream) = nullptr;
  int (*receive)(void*, size_t, int, int, NcclComm, CuStream) = nullptr;
  const char* (*error_string)(int) = nullptr;

  absl::Status Check(int result, absl::string_view what) const {
    if (result == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(what, ": ", error_string(result)));
  }
};

Nccl::Nccl(std::unique_ptr<Calls> calls) : calls_(std::move(calls)) {}

absl::StatusOr<std::unique_ptr<Nccl>> Nccl::Open(const Device& first,
                                                 const Device& second) {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::UnavailableError(dlerror());
  auto calls = std::make_unique<Calls>();
  Find(library, "ncclCommInitAll", calls->init_all);
  Find(library, "ncclCommDestroy", calls->destroy);
  Find(library, "ncclGroupStart", calls->group_start);
  Find(library, "ncclGroupEnd", calls->group_end);
  Find(library, "ncclSend", calls->send);
  Find(library, "ncclRecv", calls->receive);
  Find(library, "ncclGetErrorString", calls->error_string);
  if (calls->init_all == nullptr || calls->destroy == nullptr ||
      calls->group_start == nullptr || calls->group_end == nullptr ||
      calls->send == nullptr || calls->receive == nullptr ||
      calls->error_string == nullptr) {
    return absl::UnavailableError("libnccl.so.2 lacks ncclSend or another");
  }
  // A send from one device to another uses no multicast, which not every host
  // has.
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/1);
  std::unique_ptr<Nccl> nccl(new Nccl(std::move(calls)));
  const int ordinals[] = {first.ordinal(), second.ordinal()};
  RETURN_IF_ERROR(nccl->calls_->Check(
      nccl->calls_->init_all(nccl->communicators_, 2, ordinals),
      "ncclCommInitAll"));
  return nccl;
}

Nccl::~Nccl() {
  for (const NcclComm communicator : communicators_) {
    if (communicator != nullptr) calls_->destroy(communicator);
  }
}

absl::Status Nccl::Begin() const {
  return calls_->Check(calls_->group_start(), "ncclGroupStart");
}

absl::Status Nccl::End() const {
  return calls_->Check(calls_->group_end(), "ncclGroupEnd");
}

absl::Status Nccl::SecondToFirst(void* to, CuStream first_stream,
                                 const void* from, CuStream second_stream,
                                 size_t bytes) const {
  RETURN_IF_ERROR(
      calls_->Check(calls_->send(from, bytes, kNcclUint8, /*peer=*/0,
                                 communicators_[1], second_stream),
                    "ncclSend"));
  return calls_->Check(calls_->receive(to, bytes, kNcclUint8, /*peer=*/1,
                                       communicators_[0], first_stream),
                       "ncclRecv");
}

}  // namespace kvforge
