#include "tools/config_object.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxFileBytes = int64_t{64} << 20;
constexpr size_t kMostShownBytes = 80;  // of a wrong value, in an error

}  // namespace

absl::StatusOr<ConfigObject> ConfigObject::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  ConfigObject object;
  object.file_ = path;
  try {
    object.document_ = std::make_shared<const Json>(Json::parse(text));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", error.what(), "; expected one JSON object; copy the file ",
        "again if it was cut"));
  }
  if (!object.document_->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": it holds a JSON ", object.document_->type_name(),
                     "; expected a JSON object; give a model's own file"));
  }
  object.object_ = object.document_.get();
  return object;
}

const Json* ConfigObject::Value(absl::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigObject::Has(absl::string_view key) const {
  return Value(key) != nullptr;
}

std::string ConfigObject::PathOf(absl::string_view key) const {
  return absl::StrCat(path_, key);
}

absl::Status ConfigObject::Wrong(absl::string_view key,
                                 absl::string_view expected) const {
  const Json* value = Value(key);
  std::string found = "missing";
  if (value != nullptr) {
    found = value->dump(-1, ' ', false, Json::error_handler_t::replace);
    if (found.size() > kMostShownBytes) {
      found = absl::StrCat(found.substr(0, kMostShownBytes), "...");
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(file_, ": key '", PathOf(key), "' is ", found, "; expected ",
                   expected, "; correct the file"));
}

absl::StatusOr<int> ConfigObject::Integer(absl::string_view key, int low,
                                          int high,
                                          std::optional<int> fallback) const {
  const Json* value = Value(key);
  if (value == nullptr && fallback) return *fallback;
  const absl::Status wrong =
      Wrong(key, absl::StrCat("an integer, ", low, " to ", high));
  if (value == nullptr || !value->is_number_integer()) return wrong;
  // Above int64_t the number is stored unsigned.
  if (value->is_number_unsigned() &&
      value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return wrong;
  }
  const int64_t number = value->get<int64_t>();
  if (number < low || number > high) return wrong;
  return static_cast<int>(number);
}

absl::StatusOr<double> ConfigObject::Number(absl::string_view key,
                                            double fallback) const {
  const Json* value = Value(key);
  if (value == nullptr) return fallback;
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    return Wrong(key, "a finite number");
  }
  return value->get<double>();
}

absl::StatusOr<bool> ConfigObject::Bool(absl::string_view key,
                                        bool fallback) const {
  const Json* value = Value(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return Wrong(key, "true or false");
  return value->get<bool>();
}

absl::StatusOr<std::string> ConfigObject::Text(
    absl::string_view key, std::optional<std::string> fallback) const {
  const Json* value = Value(key);
  if (value == nullptr && fallback) return *std::move(fallback);
  if (value == nullptr || !value->is_string()) return Wrong(key, "a string");
  return value->get<std::string>();
}

absl::StatusOr<std::vector<std::string>> ConfigObject::Texts(
    absl::string_view key) const {
  const Json* value = Value(key);
  const absl::Status wrong = Wrong(key, "a list of strings");
  if (value == nullptr || !value->is_array()) return wrong;
  std::vector<std::string> texts;
  for (const Json& item : *value) {
    if (!item.is_string()) return wrong;
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

absl::StatusOr<std::optional<ConfigObject>> ConfigObject::Object(
    absl::string_view key) const {
  const Json* value = Value(key);
  if (value == nullptr) return std::optional<ConfigObject>();
  if (!value->is_object()) return Wrong(key, "an object");
  ConfigObject nested = *this;
  nested.path_ = absl::StrCat(PathOf(key), ".");
  nested.object_ = value;
  return std::optional<ConfigObject>(std::move(nested));
}

std::vector<std::string> ConfigObject::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_->items()) {
    if (!value.is_null()) keys.push_back(key);
  }
  return keys;
}

}  // namespace kvforge
