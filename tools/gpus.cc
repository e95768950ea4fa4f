// `kvforge gpus` and `kvforge formats`: what can be served.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/formats/format.h"
#include "compiler/target/target.h"
#include "runtime/base/status_macros.h"
#include "runtime/cache/disk_cache.h"
#include "runtime/cuda/device.h"
#include "tools/columns.h"
#include "tools/command.h"
#include "tools/support_record.h"
#include "tools/support_table.h"

namespace kvforge {
namespace {

// head_dim for which `kvforge formats` counts bytes.
constexpr int kShownHeadDim = 128;

// Devices of this machine by compute capability; none without a driver.
std::map<int, std::vector<std::string>> DevicesHere() {
  std::map<int, std::vector<std::string>> devices;
  const absl::StatusOr<int> count = Device::Count();
  for (int i = 0; count.ok() && i < *count; ++i) {
    const absl::StatusOr<DevicePtr> device = Device::Open(i);
    if (!device.ok()) continue;
    devices[(*device)->compute_capability()].push_back(
        absl::StrCat(i, ": ", (*device)->name()));
  }
  return devices;
}

int ShowGpus(bool json) {
  const std::map<int, std::vector<std::string>> here = DevicesHere();
  nlohmann::json list = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows = {
      {"gpu", "compiled for", "KiB a block", "KiB an SM", "warps",
       "e4m3 convert", "e2m1 convert", "tensor copies", "kernels",
       "on this machine"}};
  for (const GpuTarget& gpu : kTargets) {
    const auto devices = here.find(gpu.compute_capability);
    const std::vector<std::string> names =
        devices == here.end() ? std::vector<std::string>() : devices->second;
    // Served means that kernels compile for it; running needs the device.
    rows.push_back(
        {std::string(gpu.name), std::string(gpu.nvrtc_arch),
         absl::StrCat(gpu.shared_bytes_opt_in / kKiB),
         absl::StrCat(gpu.shared_bytes_per_sm / kKiB),
         absl::StrCat(gpu.warps_per_sm), gpu.has_e4m3_convert ? "yes" : "no",
         gpu.has_e2m1_convert ? "yes" : "no",
         gpu.has_tensor_copies ? "yes" : "no",
         gpu.served ? "compiled" : "refused", absl::StrJoin(names, ", ")});
    list.push_back({{"gpu", std::string(gpu.name)},
                    {"arch", std::string(gpu.nvrtc_arch)},
                    {"compute_capability", gpu.compute_capability},
                    {"shared_bytes_opt_in", gpu.shared_bytes_opt_in},
                    {"shared_bytes_per_sm", gpu.shared_bytes_per_sm},
                    {"shared_bytes_reserved", gpu.shared_bytes_reserved},
                    {"warps_per_sm", gpu.warps_per_sm},
                    {"registers_per_sm", gpu.registers_per_sm},
                    {"has_e4m3_convert", gpu.has_e4m3_convert},
                    {"has_e2m1_convert", gpu.has_e2m1_convert},
                    {"has_tensor_copies", gpu.has_tensor_copies},
                    {"served", gpu.served},
                    {"devices", names}});
  }
  if (json) {
    PrintJson(list);
  } else {
    std::printf("%s", Columns(rows).c_str());
  }
  return kExitOk;
}

std::string ScalesText(const KvFormat& format) {
  std::vector<std::string> parts;
  if (format.given_scale == GivenScale::kTensor) parts.push_back("given f32");
  if (format.given_scale == GivenScale::kHead) {
    parts.push_back("given f32 per kv head");
  }
  if (format.given_scale == GivenScale::kChannel) {
    parts.push_back("given f32 per kv head and channel");
  }
  if (format.block > 0) {
    parts.push_back(
        absl::StrCat(format.block_scale == BlockScale::kE4m3 ? "e4m3" : "ue8m0",
                     " per ", format.block));
  }
  if (format.row_scale != RowScale::kNone) {
    parts.push_back(format.row_scale == RowScale::kF32
                        ? "f32 per row"
                        : "f32 and f32 minimum per row");
  }
  return parts.empty() ? "none" : absl::StrJoin(parts, ", ");
}

int ShowFormats(bool json) {
  nlohmann::json list = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows = {
      {"format", "element", "bits", "scales",
       absl::StrCat("bytes a row, d", kShownHeadDim), "kernels"}};
  for (const KvFormat& format : kFormats) {
    const std::string element(ElementName(format.element));
    rows.push_back({std::string(format.name), element,
                    absl::StrCat(format.code_bits), ScalesText(format),
                    absl::StrCat(format.RowBytes(kShownHeadDim)),
                    format.served ? "store decode extend gather" : "refused"});
    list.push_back({{"format", std::string(format.name)},
                    {"element", element},
                    {"code_bits", format.code_bits},
                    {"scales", ScalesText(format)},
                    {"row_bytes_d128", format.RowBytes(kShownHeadDim)},
                    {"served", format.served}});
  }
  if (json) {
    PrintJson(list);
  } else {
    std::printf("%s", Columns(rows).c_str());
  }
  return kExitOk;
}

struct FormatsFlags {
  bool json = false;
  bool table = false;
  std::vector<std::string> records;
  std::string cache;
  std::string record;
};

absl::Status ShowSupport(const FormatsFlags& flags) {
  std::vector<SupportRecord> records;
  for (const std::string& path : flags.records) {
    ASSIGN_OR_RETURN(SupportRecord record, ReadSupportRecord(path));
    records.push_back(std::move(record));
  }
  if (!flags.cache.empty()) {
    DiskCacheOptions options;
    options.roots = {{flags.cache, false}};
    const SupportRecord compiled = CompiledIn(DiskCache(options));
    if (!flags.record.empty()) {
      RETURN_IF_ERROR(UpdateSupportRecord(flags.record, compiled));
    }
    records.push_back(compiled);
  }
  if (flags.table) std::printf("%s", SupportTable(records).c_str());
  return absl::OkStatus();
}

void AddList(CLI::App& app, const char* name, const char* description,
             int (*show)(bool), Command& command) {
  auto json = std::make_shared<bool>(false);
  CLI::App* list = app.add_subcommand(name, description);
  list->add_flag("--json", *json, "Print JSON");
  list->callback([&command, json, show] {
    command = [json, show] { return show(*json); };
  });
}

}  // namespace

void AddGpus(CLI::App& app, Command& command) {
  AddList(app, "gpus",
          "The table of GPUs, what is compiled for each, and those present",
          ShowGpus, command);
}

void AddFormats(CLI::App& app, Command& command) {
  CLI::App* formats = app.add_subcommand(
      "formats", "The table of cache formats and what serves them");
  auto flags = std::make_shared<FormatsFlags>();
  formats->add_flag("--json", flags->json, "Print JSON");
  formats->add_flag("--table", flags->table,
                    "Print format by kernel by GPU: executed, compiled or "
                    "refused, in Markdown");
  formats->add_option("--records", flags->records,
                      "Records for --table; docs/executed has them");
  formats->add_option("--cache", flags->cache,
                      "Folder whose kernels count as compiled");
  formats->add_option("--record", flags->record,
                      "Write what --cache holds to this record");
  formats->callback([&command, flags] {
    command = [flags] {
      if (!flags->table && flags->record.empty()) {
        return ShowFormats(flags->json);
      }
      const absl::Status status = ShowSupport(*flags);
      return status.ok() ? kExitOk : Fail(status, kExitUnreadable);
    };
  });
}

}  // namespace kvforge
