#include "tools/bench/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/columns.h"

namespace kvforge::bench {
namespace {

constexpr int kJsonVersion = 1;

// The pairs of cases of which the first is to be no slower than the second for
// having its bytes in one long sequence.
constexpr absl::string_view kSkewed = "/kv1024/skew100";
constexpr absl::string_view kEven = "/kv2608";

nlohmann::json ToJson(const Summary& summary) {
  return {{"median_us", summary.median},
          {"spread", summary.spread},
          {"samples", summary.samples}};
}

Summary SummaryFrom(const nlohmann::json& json) {
  return {json.at("median_us"), json.at("spread"), json.at("samples")};
}

nlohmann::json ToJson(const CaseResult& result) {
  return {{"name", result.name},
          {"error", result.error},
          {"one", ToJson(result.one)},
          {"row", ToJson(result.row)},
          {"bytes", result.bytes},
          {"flops", result.flops},
          {"accuracy", result.accuracy},
          {"registers", result.registers},
          {"shared_bytes", result.shared_bytes},
          {"spill_bytes", result.spill_bytes},
          {"detail", result.detail}};
}

CaseResult ResultFrom(const nlohmann::json& json) {
  CaseResult result;
  result.name = json.at("name");
  result.error = json.at("error");
  result.one = SummaryFrom(json.at("one"));
  result.row = SummaryFrom(json.at("row"));
  result.bytes = json.at("bytes");
  result.flops = json.at("flops");
  result.accuracy = json.at("accuracy");
  result.registers = json.at("registers");
  result.shared_bytes = json.at("shared_bytes");
  result.spill_bytes = json.at("spill_bytes");
  result.detail = json.at("detail");
  return result;
}

std::string Positive(double value, int digits) {
  return value > 0 ? absl::StrFormat("%.*f", digits, value) : "-";
}

std::vector<std::string> TableRow(const Ceilings& ceilings,
                                  const CaseResult& result) {
  const bool store = absl::StartsWith(result.name, "store/");
  std::string accuracy = "-";
  if (result.accuracy >= 0) {
    accuracy = store && result.accuracy == 0
                   ? "exact"
                   : absl::StrFormat("%.1e", result.accuracy);
  }
  return {result.name,
          Positive(result.one.median, 2),
          Positive(result.row.median, 2),
          absl::StrFormat("%.1f%%", 100 * result.row.spread),
          Positive(result.row_gb_per_s(), 0),
          Positive(PartOfCeiling(ceilings, result), 3),
          Positive(result.row_tflop_per_s(), 1),
          accuracy,
          absl::StrCat(result.registers),
          absl::StrCat(result.shared_bytes),
          absl::StrCat(result.spill_bytes),
          result.detail};
}

const CaseResult* Find(const Report& report, absl::string_view name) {
  for (const CaseResult& result : report.results) {
    if (result.name == name) return &result;
  }
  return nullptr;
}

std::string SkewLines(const Report& report) {
  std::string text;
  for (const CaseResult& result : report.results) {
    if (!absl::EndsWith(result.name, kSkewed) || !result.error.empty()) {
      continue;
    }
    const std::string stem =
        result.name.substr(0, result.name.size() - kSkewed.size());
    const CaseResult* even = Find(report, absl::StrCat(stem, kEven));
    if (even == nullptr || even->row.median <= 0) continue;
    absl::StrAppendFormat(&text, "%s takes %.2f of the time of %s\n",
                          result.name, result.row.median / even->row.median,
                          even->name);
  }
  return text;
}

bool IsPrepare(absl::string_view name) {
  return absl::StartsWith(name, "prepare/") || absl::StartsWith(name, "fetch/");
}

// The summary that two reports are compared by.
const Summary& Timed(const CaseResult& result) {
  // The row of a launch case is the driver's own, that of prepare a part.
  const bool whole_in_one =
      absl::StartsWith(result.name, "launch/") || IsPrepare(result.name);
  return result.row.median > 0 && !whole_in_one ? result.row : result.one;
}

}  // namespace

double CaseResult::row_gb_per_s() const {
  return row.median > 0 ? static_cast<double>(bytes) / row.median / 1e3 : 0;
}

double CaseResult::row_tflop_per_s() const {
  return row.median > 0 ? flops / row.median / 1e6 : 0;
}

std::string ToJson(const Report& report) {
  nlohmann::json results = nlohmann::json::array();
  for (const CaseResult& result : report.results) {
    results.push_back(ToJson(result));
  }
  nlohmann::json stream = nlohmann::json::array();
  for (const StreamPoint& point : report.ceilings.stream) {
    stream.push_back({{"bytes", point.bytes}, {"gb_per_s", point.gb_per_s}});
  }
  const nlohmann::json document = {
      {"kvforge_bench", kJsonVersion},
      {"gpu", report.gpu},
      {"driver_cuda_version", report.driver_cuda_version},
      {"measured_at", report.measured_at},
      {"ceilings",
       {{"read_gb_per_s", report.ceilings.read_gb_per_s},
        {"copy_gb_per_s", report.ceilings.copy_gb_per_s},
        {"mma_tflop_per_s", report.ceilings.mma_tflop_per_s},
        {"stream", stream},
        {"missing", report.ceilings.missing}}},
      {"results", results}};
  return document.dump(2, ' ', false,
                       nlohmann::json::error_handler_t::replace) +
         "\n";
}

absl::StatusOr<Report> ReportFromJson(absl::string_view text) {
  Report report;
  // The library's accessors throw where a part is missing or of another type.
  try {
    const nlohmann::json document =
        nlohmann::json::parse(text.begin(), text.end());
    const int version = document.at("kvforge_bench");
    if (version != kJsonVersion) {
      return absl::InvalidArgumentError(absl::StrCat(
          "bench: the report is of version ", version, "; version ",
          kJsonVersion, " is supported; measure again with this build"));
    }
    report.gpu = document.at("gpu");
    report.driver_cuda_version = document.at("driver_cuda_version");
    report.measured_at = document.at("measured_at");
    const nlohmann::json& ceilings = document.at("ceilings");
    report.ceilings.read_gb_per_s = ceilings.at("read_gb_per_s");
    report.ceilings.copy_gb_per_s = ceilings.at("copy_gb_per_s");
    report.ceilings.mma_tflop_per_s = ceilings.at("mma_tflop_per_s");
    report.ceilings.missing = ceilings.at("missing");
    for (const nlohmann::json& point : ceilings.at("stream")) {
      report.ceilings.stream.push_back(
          {point.at("bytes"), point.at("gb_per_s")});
    }
    for (const nlohmann::json& result : document.at("results")) {
      report.results.push_back(ResultFrom(result));
    }
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("bench: this is no report that `kvforge bench --json` "
                     "wrote: ",
                     error.what(), "; give such a file"));
  }
  return report;
}

double PartOfCeiling(const Ceilings& ceilings, const CaseResult& result) {
  double rate = result.row_gb_per_s();
  double ceiling = ceilings.read_gb_per_s;
  if (absl::StartsWith(result.name, "store/")) {
    ceiling = ceilings.copy_gb_per_s;
  } else if (absl::StartsWith(result.name, "extend/")) {
    rate = result.row_tflop_per_s();
    ceiling = ceilings.mma_tflop_per_s;
  }
  return ceiling > 0 ? rate / ceiling : 0;
}

std::string ToTable(const Report& report) {
  std::string text;
  if (!report.gpu.empty()) {
    const Ceilings& ceilings = report.ceilings;
    absl::StrAppendFormat(
        &text,
        "%s, driver of CUDA %d.%d, %s\n"
        "ceilings: read %.0f GB/s, copy %.0f GB/s (read + written), f16 "
        "mma.sync %.0f TFLOP/s\n",
        report.gpu, report.driver_cuda_version / 1000,
        report.driver_cuda_version % 1000 / 10, report.measured_at,
        ceilings.read_gb_per_s, ceilings.copy_gb_per_s,
        ceilings.mma_tflop_per_s);
    if (!ceilings.missing.empty()) {
      absl::StrAppend(
          &text, "a ceiling of 0 was not measured: ", ceilings.missing, "\n");
    }
  }
  using Rows = std::vector<std::vector<std::string>>;
  Rows kernels = {{"case", "one us", "row us", "+-", "GB/s", "of ceiling",
                   "TFLOP/s", "error", "regs", "shared", "spills", ""}};
  Rows launches = {{"case", "call us", "bare us", "+-", ""}};
  Rows prepares = {
      {"case", "ready ms", "of it read ms", "+-", "regs", "spills", ""}};
  Rows compiles = {{"case", "text ms", "cubin ms", "+-", "regs", "spills", ""}};
  std::string unmeasured;
  for (const CaseResult& result : report.results) {
    const std::string spread =
        absl::StrFormat("%.1f%%", 100 * result.one.spread);
    if (!result.error.empty()) {
      absl::StrAppend(&unmeasured, result.name, ": ", result.error, "\n");
    } else if (absl::StartsWith(result.name, "launch/")) {
      launches.push_back({result.name, Positive(result.one.median, 2),
                          Positive(result.row.median, 2), spread,
                          result.detail});
    } else if (IsPrepare(result.name)) {
      prepares.push_back({result.name, Positive(result.one.median / 1e3, 3),
                          Positive(result.row.median / 1e3, 3), spread,
                          absl::StrCat(result.registers),
                          absl::StrCat(result.spill_bytes), result.detail});
    } else if (absl::StartsWith(result.name, "specialise/")) {
      compiles.push_back({result.name, Positive(result.one.median / 1e3, 2),
                          Positive(result.row.median / 1e3, 0),
                          absl::StrFormat("%.1f%%", 100 * result.row.spread),
                          absl::StrCat(result.registers),
                          absl::StrCat(result.spill_bytes), result.detail});
    } else {
      kernels.push_back(TableRow(report.ceilings, result));
    }
  }
  for (const Rows* rows : {&kernels, &launches, &prepares, &compiles}) {
    if (rows->size() > 1) absl::StrAppend(&text, Columns(*rows));
  }
  return absl::StrCat(text, SkewLines(report), unmeasured);
}

std::string CompareReports(const Report& before, const Report& after) {
  std::vector<std::vector<std::string>> rows = {
      {"case", "before us", "after us", "speed", "noise", ""}};
  std::string missing;
  for (const CaseResult& result : after.results) {
    const CaseResult* old = Find(before, result.name);
    if (old == nullptr || Timed(*old).median <= 0 ||
        Timed(result).median <= 0) {
      absl::StrAppend(&missing, result.name, ": measured in only one run\n");
      continue;
    }
    const Change change = Compare(Timed(*old), Timed(result));
    rows.push_back({result.name, absl::StrFormat("%.2f", Timed(*old).median),
                    absl::StrFormat("%.2f", Timed(result).median),
                    absl::StrFormat("%.3fx", change.ratio),
                    absl::StrFormat("%.1f%%", 100 * change.noise),
                    !change.significant() ? "within noise"
                    : change.ratio > 1    ? "faster"
                                          : "slower"});
  }
  for (const CaseResult& old : before.results) {
    if (Find(after, old.name) == nullptr) {
      absl::StrAppend(&missing, old.name, ": not measured now\n");
    }
  }
  std::string gpus;
  if (before.gpu != after.gpu) {
    gpus = absl::StrCat("the runs are of different GPUs: ", before.gpu, " and ",
                        after.gpu, "\n");
  }
  return absl::StrCat(gpus, Columns(rows), missing);
}

}  // namespace kvforge::bench
