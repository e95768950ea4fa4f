#include "tools/support_table.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/target/target.h"

namespace kvforge {
namespace {

constexpr char kHost[] = "host";  // of records: the CPU
constexpr char kNoRecord[] = "no record";
constexpr char kOfAnyFormat[] = "-";

// GPUs that run the same instructions, and the CPU running their texts.
struct Path {
  std::string title;
  std::vector<std::string> gpus;
};

const GpuTarget& TargetRow(const std::string& name) {
  return *std::find_if(std::begin(kTargets), std::end(kTargets),
                       [&](const GpuTarget& gpu) { return gpu.name == name; });
}

std::vector<Path> Paths() {
  std::vector<Path> paths = {{"CPU", {kHost}}};
  for (const GpuTarget& gpu : kTargets) {
    const std::string name(gpu.name);
    const auto& last = paths.back();
    const GpuTarget* before =
        last.gpus[0] == kHost ? nullptr : &TargetRow(last.gpus[0]);
    // sm_90 has a path of its own, and so has what is refused.
    const bool joins = before != nullptr && before->served == gpu.served &&
                       before->has_e4m3_convert == gpu.has_e4m3_convert &&
                       before->has_e2m1_convert == gpu.has_e2m1_convert &&
                       before->has_tensor_copies == gpu.has_tensor_copies &&
                       gpu.compute_capability != 90 &&
                       before->compute_capability != 90;
    if (joins) {
      paths.back().gpus.push_back(name);
    } else {
      paths.push_back({"", {name}});
    }
  }
  for (Path& path : paths) {
    if (path.title.empty()) path.title = absl::StrJoin(path.gpus, " ");
  }
  return paths;
}

std::string StateOn(const std::vector<SupportRecord>& records,
                    const std::string& gpu, const std::string& kernel,
                    const std::string& format) {
  std::string state = kNoRecord;
  for (const SupportRecord& record : records) {
    const auto kernels = record.gpus.find(gpu);
    if (kernels == record.gpus.end()) continue;
    const auto formats = kernels->second.find(kernel);
    if (formats == kernels->second.end()) continue;
    if (formats->second.count(format) == 0) continue;
    if (state != "executed") state = record.state;
  }
  return state;
}

// "executed" if all are; else "executed: sm_80; compiled: sm_86, sm_87".
std::string Summary(
    const std::vector<std::pair<std::string, std::string>>& states) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::string>> of_state;
  for (const auto& [name, state] : states) {
    if (of_state[state].empty()) order.push_back(state);
    of_state[state].push_back(name);
  }
  if (order.size() == 1) return order[0];
  std::vector<std::string> parts;
  for (const std::string& state : order) {
    parts.push_back(
        absl::StrCat(state, ": ", absl::StrJoin(of_state[state], ", ")));
  }
  return absl::StrJoin(parts, "; ");
}

std::string Cell(const std::vector<SupportRecord>& records, const Path& path,
                 const KvFormat* format,
                 const std::vector<std::string>& kernels) {
  if (path.gpus[0] != kHost) {
    const GpuTarget& gpu = TargetRow(path.gpus[0]);
    if (!gpu.served) return absl::StrCat("refused (", gpu.name, " not served)");
  }
  if (format != nullptr && !format->served) {
    return absl::StrCat("refused (", format->name, " not served)");
  }
  const std::string format_name(format == nullptr ? kOfAnyFormat
                                                  : format->name);
  std::vector<std::pair<std::string, std::string>> of_kernels;
  for (const std::string& kernel : kernels) {
    std::vector<std::pair<std::string, std::string>> of_gpus;
    for (const std::string& gpu : path.gpus) {
      of_gpus.emplace_back(gpu, StateOn(records, gpu, kernel, format_name));
    }
    of_kernels.emplace_back(kernel, Summary(of_gpus));
  }
  return Summary(of_kernels);
}

}  // namespace

SupportRecord CompiledIn(const DiskCache& cache) {
  SupportRecord record;
  record.state = "compiled";
  std::set<std::string> compilers;
  for (const ListedEntry& listed : cache.List()) {
    if (!listed.entry.ok()) continue;
    const Entry& entry = *listed.entry;
    const absl::StatusOr<KernelSpec> spec = ParseSpec(entry.key.spec);
    if (!spec.ok()) continue;
    for (const GpuTarget& gpu : kTargets) {
      if (gpu.nvrtc_arch != entry.key.arch) continue;
      compilers.insert(entry.facts.compiler);
      record.Add(std::string(gpu.name), spec->kernel, spec->k_format,
                 spec->v_format);
    }
  }
  record.on = absl::StrJoin(compilers, ", ");
  return record;
}

std::string SupportTable(const std::vector<SupportRecord>& records) {
  const std::vector<Path> paths = Paths();
  std::string text = "| format | kernels |";
  std::string rule = "|---|---|";
  for (const Path& path : paths) {
    absl::StrAppend(&text, " ", path.title, " |");
    rule += "---|";
  }
  absl::StrAppend(&text, "\n", rule, "\n");
  const auto row = [&](const KvFormat* format,
                       const std::vector<std::string>& kernels) {
    absl::StrAppend(
        &text, "| ",
        format == nullptr ? "any" : absl::StrCat("`", format->name, "`"), " | ",
        absl::StrJoin(kernels, " "), " |");
    for (const Path& path : paths) {
      absl::StrAppend(&text, " ", Cell(records, path, format, kernels), " |");
    }
    text += "\n";
  };
  for (const KvFormat& format : kFormats) {
    row(&format, {"store", "decode", "extend", "gather"});
  }
  row(nullptr, {"merge"});
  return text;
}

}  // namespace kvforge
