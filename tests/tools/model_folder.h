// Folders like a model's, written by a test: config files and checkpoints of a
// few tensors.
#ifndef KVFORGE_TESTS_TOOLS_MODEL_FOLDER_H_
#define KVFORGE_TESTS_TOOLS_MODEL_FOLDER_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "runtime/base/file.h"
#include "tests/runtime/temporary_folder.h"

namespace kvforge {

struct FixtureTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

inline FixtureTensor F32Tensor(std::vector<int64_t> shape,
                               std::vector<float> values) {
  FixtureTensor tensor = {"F32", std::move(shape), {}};
  tensor.bytes.resize(values.size() * sizeof(float));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

inline std::string SafetensorsBytes(
    const std::map<std::string, FixtureTensor>& tensors) {
  std::string data;
  std::vector<std::string> items;
  for (const auto& [name, tensor] : tensors) {
    items.push_back(absl::StrCat(
        "\"", name, "\":{\"dtype\":\"", tensor.dtype, "\",\"shape\":[",
        absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[", data.size(),
        ",", data.size() + tensor.bytes.size(), "]}"));
    data += tensor.bytes;
  }
  const std::string header = absl::StrCat("{", absl::StrJoin(items, ","), "}");
  const uint64_t header_bytes = header.size();
  std::string bytes(sizeof(header_bytes), '\0');
  std::memcpy(bytes.data(), &header_bytes, sizeof(header_bytes));
  return bytes + header + data;
}

class ModelFolder {
 public:
  explicit ModelFolder(absl::string_view config) {
    Write("config.json", config);
  }
  const std::string& path() const { return folder_.path(); }
  std::string Path(absl::string_view name) const { return folder_.Path(name); }
  void Write(absl::string_view name, absl::string_view bytes) const {
    ASSERT_TRUE(WriteFileAtomically(Path(name), bytes).ok()) << name;
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace kvforge

#endif  // KVFORGE_TESTS_TOOLS_MODEL_FOLDER_H_
