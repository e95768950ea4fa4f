// What a tuning run found, as a table, as JSON and as a picture.
#ifndef KVFORGE_TOOLS_TUNE_TUNE_REPORT_H_
#define KVFORGE_TOOLS_TUNE_TUNE_REPORT_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/tune/search.h"
#include "runtime/tune/turns.h"

namespace kvforge::tune {

struct TuneReport {
  TuneJob job;
  std::string selected;  // the analytic selector's tile
  SearchResult result;
  std::optional<TurnTimes> turns;  // the winner beside the selector's tile
};

// A line a candidate, fastest first, and what was chosen.
std::string ToTable(const TuneReport& report);
nlohmann::json ToJson(const TuneReport& report);

// A heat map for each report: block_m by block_n, the fastest candidate of each
// cell, coloured by its time as a multiple of the best. Cells without a timed
// candidate are empty.
std::string ToSvg(const std::vector<TuneReport>& reports);

}  // namespace kvforge::tune

#endif  // KVFORGE_TOOLS_TUNE_TUNE_REPORT_H_
