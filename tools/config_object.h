// An object of a JSON file of a model, such as config.json, read key by key.
// Every error names file and key, what is there and what was expected:
//
//   DIR/config.json: key 'num_attention_heads' is "32"; expected an integer, 1
//   to 65536; correct the file
//
// A key whose value is null reads as one that is missing.
#ifndef KVFORGE_TOOLS_CONFIG_OBJECT_H_
#define KVFORGE_TOOLS_CONFIG_OBJECT_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvforge {

// Copies share the document.
class ConfigObject {
 public:
  // kNotFound where there is no such file; kInvalidArgument for one that is no
  // JSON object, saying at which byte it stops being one.
  static absl::StatusOr<ConfigObject> Open(const std::string& path);

  const std::string& file() const { return file_; }
  bool Has(absl::string_view key) const;

  // The value of a key, or `fallback` where it is missing; without a fallback
  // a missing key is an error.
  absl::StatusOr<int> Integer(absl::string_view key, int low, int high,
                              std::optional<int> fallback = {}) const;
  absl::StatusOr<double> Number(absl::string_view key, double fallback) const;
  absl::StatusOr<bool> Bool(absl::string_view key, bool fallback) const;
  absl::StatusOr<std::string> Text(
      absl::string_view key, std::optional<std::string> fallback = {}) const;
  absl::StatusOr<std::vector<std::string>> Texts(absl::string_view key) const;
  // nullopt where the key is missing.
  absl::StatusOr<std::optional<ConfigObject>> Object(
      absl::string_view key) const;

  // Keys whose values are not null, in order.
  std::vector<std::string> Keys() const;

  // kInvalidArgument: what the key has is not what was `expected`.
  absl::Status Wrong(absl::string_view key, absl::string_view expected) const;
  // "text_config.head_dim"
  std::string PathOf(absl::string_view key) const;

 private:
  ConfigObject() = default;

  const nlohmann::json* Value(absl::string_view key) const;

  std::string file_;
  std::string path_;  // "text_config." of a nested object
  std::shared_ptr<const nlohmann::json> document_;
  const nlohmann::json* object_ = nullptr;  // inside document_
};

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_CONFIG_OBJECT_H_
