#include "tools/tune/tune_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/columns.h"

namespace kvforge::tune {
namespace {

std::vector<const TuneRecord*> FastestFirst(const SearchResult& result) {
  std::vector<const TuneRecord*> records;
  for (const TuneRecord& record : result.records) records.push_back(&record);
  std::stable_sort(
      records.begin(), records.end(),
      [](const TuneRecord* a, const TuneRecord* b) {
        return std::tie(a->verdict, a->timing.median_us, a->key.candidate) <
               std::tie(b->verdict, b->timing.median_us, b->key.candidate);
      });
  return records;
}

std::string Chosen(const TuneReport& report) {
  if (!report.result.winner) {
    return absl::StrCat("no candidate was timed: the selector's tile ",
                        report.selected);
  }
  const TuneRecord& winner = *report.result.winner;
  std::string text = absl::StrFormat(
      "winner %s: %.2f us, spread %.1f %%", winner.key.candidate,
      winner.timing.median_us, 100 * winner.timing.spread);
  for (const TuneRecord& record : report.result.records) {
    if (record.key.candidate != report.selected ||
        record.verdict != TuneVerdict::kTimed) {
      continue;
    }
    absl::StrAppendFormat(&text, "; the selector's %s: %.2f us, %.2f times",
                          report.selected, record.timing.median_us,
                          record.timing.median_us / winner.timing.median_us);
  }
  if (report.turns) {
    const double winner_us = MedianRound(report.turns->winner_us);
    const double selected_us = MedianRound(report.turns->selected_us);
    absl::StrAppendFormat(&text,
                          "; in turns, %d rounds: %.2f and %.2f us, %.2f "
                          "times, %s",
                          report.turns->winner_us.size(), winner_us,
                          selected_us, selected_us / winner_us,
                          TurnVerdictName(Compare(*report.turns)));
  }
  return text;
}

}  // namespace

std::string ToTable(const TuneReport& report) {
  std::vector<std::vector<std::string>> rows = {
      {"candidate", "", "us", "spread %", "registers", "shared bytes", ""}};
  for (const TuneRecord* record : FastestFirst(report.result)) {
    const bool timed = record->verdict == TuneVerdict::kTimed;
    const bool selected = record->key.candidate == report.selected;
    rows.push_back(
        {record->key.candidate, std::string(VerdictName(record->verdict)),
         timed ? absl::StrFormat("%.2f", record->timing.median_us) : "",
         timed ? absl::StrFormat("%.1f", 100 * record->timing.spread) : "",
         record->registers > 0 ? absl::StrCat(record->registers) : "",
         record->shared_bytes > 0 ? absl::StrCat(record->shared_bytes) : "",
         absl::StrCat(selected ? "the selector's " : "", record->note)});
  }
  // What was only checked ran at sizes of its own.
  const bool checked =
      std::any_of(report.result.records.begin(), report.result.records.end(),
                  [](const TuneRecord& record) {
                    return record.verdict == TuneVerdict::kChecked;
                  });
  return absl::StrCat(
      report.job.spec,
      checked ? ", not timed," : absl::StrCat(" at ", report.job.shape), " on ",
      report.job.device, "\n", Columns(rows), Chosen(report), "; ",
      report.result.measured, " tried, ", report.result.found,
      " from the table, ", report.result.missing, " missing\n");
}

nlohmann::json ToJson(const TuneReport& report) {
  nlohmann::json json = {{"device", report.job.device},
                         {"gpu", report.job.gpu},
                         {"spec", report.job.spec},
                         {"shape", report.job.shape},
                         {"selected", report.selected},
                         {"measured", report.result.measured},
                         {"found", report.result.found},
                         {"missing", report.result.missing},
                         {"candidates", nlohmann::json::array()}};
  json["winner"] = report.result.winner
                       ? nlohmann::json(report.result.winner->key.candidate)
                       : nlohmann::json();
  if (report.turns) {
    json["turns"] = {
        {"winner_us", report.turns->winner_us},
        {"selected_us", report.turns->selected_us},
        {"verdict", std::string(TurnVerdictName(Compare(*report.turns)))}};
  }
  for (const TuneRecord* record : FastestFirst(report.result)) {
    json["candidates"].push_back(
        {{"candidate", record->key.candidate},
         {"verdict", std::string(VerdictName(record->verdict))},
         {"note", record->note},
         {"median_us", record->timing.median_us},
         {"spread", record->timing.spread},
         {"samples", record->timing.samples},
         {"registers", record->registers},
         {"shared_bytes", record->shared_bytes},
         {"spill_bytes", record->spill_bytes},
         {"measured_at", record->measured_at}});
  }
  return json;
}

}  // namespace kvforge::tune
