#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "compiler/tile/tile.h"
#include "tools/tune/tune_report.h"

namespace kvforge::tune {
namespace {

// Pixels.
constexpr double kCellWidth = 150;
constexpr double kCellHeight = 56;
constexpr double kLeft = 90;
constexpr double kTop = 60;  // of a map, with its title
constexpr double kBottom = 30;
constexpr double kLeastWidth = 700;
constexpr double kWorstShown = 3;  // times the best: the darkest red

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string Text(double x, double y, absl::string_view anchor,
                 absl::string_view text) {
  return absl::StrFormat(
      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
      anchor, Escaped(text));
}

// Green for the best, over yellow, to red.
std::string Colour(double ratio) {
  const double part =
      std::clamp(std::log(ratio) / std::log(kWorstShown), 0.0, 1.0);
  return absl::StrFormat("hsl(%.0f,60%%,72%%)", 120 * (1 - part));
}

using Cell = std::pair<int, int>;  // block_m, block_n

struct Fastest {
  const TuneRecord* record;
  Tile tile;
};

std::map<Cell, Fastest> Cells(const SearchResult& result) {
  std::map<Cell, Fastest> cells;
  for (const TuneRecord& record : result.records) {
    if (record.verdict != TuneVerdict::kTimed) continue;
    const auto parts = ParseCandidate(record.key.candidate);
    if (!parts.ok()) continue;
    const auto tile = ParseTile(parts->tile);
    if (!tile.ok()) continue;
    const auto [at, is_new] = cells.try_emplace(
        Cell{tile->block_m, tile->block_n}, Fastest{&record, *tile});
    if (!is_new && std::tie(record.timing.median_us, record.key.candidate) <
                       std::tie(at->second.record->timing.median_us,
                                at->second.record->key.candidate)) {
      at->second = {&record, *tile};
    }
  }
  return cells;
}

// One map from `top` on; adds its height to `top` and widens `width`.
std::string Map(const TuneReport& report, double& top, double& width) {
  const std::map<Cell, Fastest> cells = Cells(report.result);
  std::set<int> rows, columns;
  double best = 0;
  for (const auto& [cell, fastest] : cells) {
    rows.insert(cell.first);
    columns.insert(cell.second);
    const double median = fastest.record->timing.median_us;
    best = best == 0 ? median : std::min(best, median);
  }
  std::string svg =
      Text(10, top + 18, "start",
           absl::StrCat(report.job.spec, " at ", report.job.shape));
  double x = kLeft;
  for (const int block_n : columns) {
    absl::StrAppend(&svg, Text(x + kCellWidth / 2, top + kTop - 8, "middle",
                               absl::StrCat("block_n ", block_n)));
    x += kCellWidth;
  }
  width = std::max(width, x + 20);
  double y = top + kTop;
  for (const int block_m : rows) {
    absl::StrAppend(&svg, Text(kLeft - 8, y + kCellHeight / 2 + 4, "end",
                               absl::StrCat("block_m ", block_m)));
    x = kLeft;
    for (const int block_n : columns) {
      const auto found = cells.find({block_m, block_n});
      const bool is_empty = found == cells.end();
      const double ratio =
          is_empty ? 0 : found->second.record->timing.median_us / best;
      absl::StrAppendFormat(
          &svg,
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
          "fill=\"%s\" stroke=\"#fff\"><title>%s</title></rect>\n",
          x, y, kCellWidth, kCellHeight,
          is_empty ? std::string("#eee") : Colour(ratio),
          is_empty ? std::string("not timed")
                   : Escaped(found->second.record->key.candidate));
      if (!is_empty) {
        const TuneRecord& record = *found->second.record;
        absl::StrAppend(
            &svg,
            Text(x + kCellWidth / 2, y + 24, "middle",
                 absl::StrFormat("%.2f us (%.2fx)", record.timing.median_us,
                                 ratio)),
            Text(x + kCellWidth / 2, y + 42, "middle",
                 absl::StrCat(found->second.tile.stages, " stages, ",
                              found->second.tile.warps, " warps")));
      }
      x += kCellWidth;
    }
    y += kCellHeight;
  }
  if (cells.empty()) {
    absl::StrAppend(&svg, Text(kLeft, y, "start", "no candidate was timed"));
  }
  top = y + kBottom;
  return svg;
}

}  // namespace

std::string ToSvg(const std::vector<TuneReport>& reports) {
  double top = 30;
  double width = kLeastWidth;
  std::string maps;
  for (const TuneReport& report : reports) {
    absl::StrAppend(&maps, Map(report, top, width));
  }
  return absl::StrCat(
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" "
                      "width=\"%.0f\" height=\"%.0f\" "
                      "viewBox=\"0 0 %.0f %.0f\">\n",
                      width, top, width, top),
      "<style>text{font:12px sans-serif;fill:#222}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      Text(10, 18, "start",
           reports.empty() ? std::string("nothing was tuned")
                           : reports[0].job.device),
      maps, "</svg>\n");
}

}  // namespace kvforge::tune
