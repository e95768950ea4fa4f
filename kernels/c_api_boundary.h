// What every call of c_api.h does at its edge: handles, structs of the caller's
// size, and statuses for errors and exceptions.
#ifndef KVFORGE_KERNELS_C_API_BOUNDARY_H_
#define KVFORGE_KERNELS_C_API_BOUNDARY_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/c_api.h"
#include "kernels/engine.h"

// Handles hold the strings that they give out.
struct kvforge_engine {
  std::unique_ptr<kvforge::Engine> engine;
  std::string gpu;
};

struct kvforge_kernel {
  std::shared_ptr<const kvforge::PreparedKernel> prepared;
  std::string spec;
  std::string tile;
  std::string key_digest;
};

namespace kvforge::c_api {

// Keeps the message for kvforge_last_error and returns the code.
int Report(absl::StatusCode code, absl::string_view message) noexcept;

// Runs the body of a call; nothing that it throws passes.
template <typename Body>
int Guarded(const Body& body) noexcept {
  try {
    const absl::Status status = body();
    if (status.ok()) return KVFORGE_OK;
    return Report(status.code(), status.message());
  } catch (const std::bad_alloc&) {
    return Report(absl::StatusCode::kResourceExhausted,
                  "the process is out of memory; free some and call again");
  } catch (const std::exception& error) {
    return Report(absl::StatusCode::kInternal, error.what());
  } catch (...) {
    return Report(absl::StatusCode::kInternal,
                  "an exception of unknown type inside kvforge; report it");
  }
}

inline absl::Status NullError(absl::string_view call, absl::string_view name,
                              absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      call, ": ", name, " is null; it must be ", what, "; pass one"));
}

// kInvalidArgument if a pointer argument is null.
template <typename T>
absl::Status CheckNotNull(absl::string_view call, absl::string_view name,
                          const T* pointer, absl::string_view what) {
  if (pointer != nullptr) return absl::OkStatus();
  return NullError(call, name, what);
}

// Bytes of a struct when it first was part of the ABI: the least that a caller
// may pass. Where a field is appended, specialise this with its offset.
template <typename T>
inline constexpr size_t kFirstBytes = sizeof(T);

// More than any struct will have: a `struct_size` beyond it was never set.
inline constexpr size_t kMostStructBytes = 4096;

absl::Status StructSizeError(absl::string_view call, absl::string_view name,
                             size_t struct_size, size_t first_bytes,
                             size_t bytes);
absl::Status UnknownFieldError(absl::string_view call, absl::string_view name,
                               size_t struct_size, size_t bytes);

// kInvalidArgument if the struct is null or its size is not one it ever had.
template <typename T>
absl::Status CheckStruct(absl::string_view call, absl::string_view name,
                         const T* from) {
  if (from == nullptr) return NullError(call, name, "the address of a struct");
  static_assert(offsetof(T, struct_size) == 0);
  if (from->struct_size < kFirstBytes<T> ||
      from->struct_size > kMostStructBytes) {
    return StructSizeError(call, name, from->struct_size, kFirstBytes<T>,
                           sizeof(T));
  }
  return absl::OkStatus();
}

// Copies a struct that the caller filled in. Fields that the caller does not
// know are 0; kInvalidArgument if fields that we do not know are not.
template <typename T>
absl::Status ReadStruct(absl::string_view call, absl::string_view name,
                        const T* from, T& to) {
  if (absl::Status status = CheckStruct(call, name, from); !status.ok()) {
    return status;
  }
  const size_t bytes = from->struct_size;
  if (bytes > sizeof(T)) {
    const auto* first = reinterpret_cast<const unsigned char*>(from);
    if (!std::all_of(first + sizeof(T), first + bytes,
                     [](unsigned char byte) { return byte == 0; })) {
      return UnknownFieldError(call, name, bytes, sizeof(T));
    }
  }
  to = {};
  std::memcpy(&to, from, std::min(bytes, sizeof(T)));
  return absl::OkStatus();
}

// Writes a struct that CheckStruct has passed: the fields that the caller
// knows, and 0 to those that only the caller knows.
template <typename T>
void WriteStruct(T from, T* to) {
  const size_t bytes = to->struct_size;
  from.struct_size = bytes;
  std::memcpy(to, &from, std::min(bytes, sizeof(T)));
  if (bytes > sizeof(T)) {
    std::memset(reinterpret_cast<unsigned char*>(to) + sizeof(T), 0,
                bytes - sizeof(T));
  }
}

}  // namespace kvforge::c_api

#endif  // KVFORGE_KERNELS_C_API_BOUNDARY_H_
