#include "tools/support_record.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status_macros.h"

namespace kvforge {

void SupportRecord::Add(const std::string& gpu, KernelKind kernel,
                        const KvFormat* k, const KvFormat* v) {
  std::set<std::string>& formats = gpus[gpu][std::string(KernelName(kernel))];
  if (kernel == KernelKind::kMerge) {
    formats.insert("-");
    return;
  }
  formats.insert(std::string(k->name));
  formats.insert(std::string(v->name));
}

absl::StatusOr<SupportRecord> ReadSupportRecord(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const nlohmann::json json =
      nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const absl::Status bad = absl::InvalidArgumentError(absl::StrCat(
      path,
      " is no record of kernels; tools/support_record.h has the form; write it "
      "with `case_suite_test --executed` or `kvforge formats --record`"));
  if (!json.is_object() || !json.contains("state") ||
      !json["state"].is_string() || !json.contains("on") ||
      !json["on"].is_string() || !json.contains("gpus") ||
      !json["gpus"].is_object()) {
    return bad;
  }
  SupportRecord record;
  record.state = json["state"];
  record.on = json["on"];
  if (record.state != "executed" && record.state != "compiled") return bad;
  for (const auto& [gpu, kernels] : json["gpus"].items()) {
    if (!kernels.is_object()) return bad;
    for (const auto& [kernel, formats] : kernels.items()) {
      if (!formats.is_array()) return bad;
      for (const nlohmann::json& format : formats) {
        if (!format.is_string()) return bad;
        record.gpus[gpu][kernel].insert(format.get<std::string>());
      }
    }
  }
  return record;
}

absl::Status UpdateSupportRecord(const std::string& path,
                                 const SupportRecord& record) {
  SupportRecord all = record;
  const absl::StatusOr<SupportRecord> before = ReadSupportRecord(path);
  if (before.ok() && before->state == record.state) {
    for (const auto& [gpu, kernels] : before->gpus) {
      for (const auto& [kernel, formats] : kernels) {
        all.gpus[gpu][kernel].insert(formats.begin(), formats.end());
      }
    }
  } else if (!before.ok() && !absl::IsNotFound(before.status())) {
    return before.status();
  }
  nlohmann::json gpus = nlohmann::json::object();
  for (const auto& [gpu, kernels] : all.gpus) {
    for (const auto& [kernel, formats] : kernels) gpus[gpu][kernel] = formats;
  }
  return WriteFileAtomically(
      path,
      nlohmann::json{{"state", all.state}, {"on", all.on}, {"gpus", gpus}}.dump(
          1) +
          "\n");
}

}  // namespace kvforge
