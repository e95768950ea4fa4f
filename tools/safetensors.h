// Reads safetensors files, strictly: a file that is not exactly of this form is
// an error, never a crash or a read out of bounds.
//
//   8 bytes     little-endian length N of the header
//   N bytes     JSON object: name -> {"dtype", "shape", "data_offsets"}, and
//               optionally "__metadata__": name -> string
//   the rest    the tensors' bytes; data_offsets [begin, end) count from here
//
// Checked: N fits the file and kMaxHeaderBytes; the JSON is one object without
// repeated names; dtypes are known; shape * dtype = end - begin; the tensors
// cover the rest of the file without a gap or an overlap.
//
// Format: https://huggingface.co/docs/safetensors
#ifndef KVFORGE_TOOLS_SAFETENSORS_H_
#define KVFORGE_TOOLS_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvforge {

inline constexpr size_t kMaxHeaderBytes = 16 << 20;

// A view into the file that holds it. Little endian, row major.
struct Tensor {
  std::string dtype;           // file's spelling: "F32", "BF16", "U8"
  std::vector<int64_t> shape;  // empty: one value
  absl::Span<const uint8_t> bytes;

  int64_t ElementCount() const;

  // The elements as T; T has the size of the dtype. Bytes in a file have no
  // alignment, hence the copy.
  template <typename T>
  std::vector<T> Values() const {
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) {
      std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    }
    return values;
  }
};

class SafetensorsFile {
 public:
  // kNotFound; kInvalidArgument with what is wrong and where; kOutOfRange for a
  // file of 2 GiB or more.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  // Checked alike, for a file of any size: only the tensors that `wanted` names
  // are read and kept, 1 GiB of them at most.
  static absl::StatusOr<SafetensorsFile> OpenSome(
      const std::string& path,
      const std::function<bool(absl::string_view name)>& wanted);
  // `bytes`: the whole file. `name` is for messages.
  static absl::StatusOr<SafetensorsFile> Parse(std::string bytes,
                                               absl::string_view name);

  const std::map<std::string, std::string>& metadata() const {
    return metadata_;
  }
  // Views stay valid while this object lives, moves included.
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

  // The tensor of that name, dtype and shape; -1 in `shape` takes any extent.
  absl::StatusOr<Tensor> Find(absl::string_view name, absl::string_view dtype,
                              absl::Span<const int64_t> shape) const;
  bool Has(absl::string_view name) const {
    return tensors_.count(std::string(name)) != 0;
  }

 private:
  std::string name_;
  std::vector<uint8_t> data_;  // a vector: its buffer does not move with it
  std::map<std::string, std::string> metadata_;
  std::map<std::string, Tensor> tensors_;
};

// Bytes of one element of a dtype; 0 = unknown.
int SafetensorsDTypeBytes(absl::string_view dtype);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_SAFETENSORS_H_
