#include "runtime/tune/winners.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr int kFormatVersion = 1;
constexpr char kFormatKey[] = "kvforge_winners";

absl::Status NoWinners(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("winners ", path, ": ", what,
                   "; a file that `kvforge tune --db TABLE --export FILE` "
                   "wrote is supported; export it again"));
}

Winner WinnerOf(const TuneRecord& record, std::string shape) {
  return {record.key.device,       record.gpu,           record.key.spec,
          std::move(shape),        record.key.candidate, record.key.version,
          record.timing.median_us, record.timing.spread};
}

}  // namespace

Winners::Winners(std::vector<Winner> winners) {
  for (Winner& winner : winners) {
    auto key = std::make_tuple(winner.device, winner.spec, winner.shape);
    winners_.insert_or_assign(std::move(key), std::move(winner));
  }
}

absl::StatusOr<Winners> Winners::Read(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  if (absl::StartsWith(text, "SQLite format 3")) {
    return NoWinners(path, "this is the tuning table itself");
  }
  const nlohmann::json json =
      nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value(kFormatKey, nlohmann::json()) !=
                               nlohmann::json(kFormatVersion)) {
    return NoWinners(path, absl::StrCat("not JSON with \"", kFormatKey,
                                        "\": ", kFormatVersion));
  }
  std::vector<Winner> winners;
  for (const nlohmann::json& row :
       json.value("winners", nlohmann::json::array())) {
    Winner winner;
    for (const auto& [name, field] : {std::pair{"device", &winner.device},
                                      {"gpu", &winner.gpu},
                                      {"spec", &winner.spec},
                                      {"shape", &winner.shape},
                                      {"candidate", &winner.candidate},
                                      {"version", &winner.version}}) {
      if (!row.is_object() || !row.contains(name) || !row[name].is_string()) {
        return NoWinners(path, absl::StrCat("winner ", winners.size(),
                                            " has no text \"", name, "\""));
      }
      *field = row[name].get<std::string>();
    }
    for (const auto& [name, field] : {std::pair{"median_us", &winner.median_us},
                                      {"spread", &winner.spread}}) {
      if (row.contains(name) && row[name].is_number()) {
        *field = row[name].get<double>();
      }
    }
    if (const auto parts = ParseCandidate(winner.candidate); !parts.ok()) {
      return NoWinners(path, parts.status().message());
    }
    winners.push_back(std::move(winner));
  }
  return Winners(std::move(winners));
}

std::string Winners::ToJson() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [key, winner] : winners_) {
    rows.push_back({{"device", winner.device},
                    {"gpu", winner.gpu},
                    {"spec", winner.spec},
                    {"shape", winner.shape},
                    {"candidate", winner.candidate},
                    {"version", winner.version},
                    {"median_us", winner.median_us},
                    {"spread", winner.spread}});
  }
  const nlohmann::json json = {{kFormatKey, kFormatVersion}, {"winners", rows}};
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

const Winner* Winners::Find(absl::string_view device, absl::string_view spec,
                            absl::string_view shape) const {
  const auto found = winners_.find(std::make_tuple(
      std::string(device), std::string(spec), std::string(shape)));
  return found == winners_.end() ? nullptr : &found->second;
}

std::vector<std::string> Winners::TilesFor(absl::string_view gpu,
                                           absl::string_view spec) const {
  std::set<std::string> tiles;
  for (const auto& [key, winner] : winners_) {
    if (winner.gpu != gpu || winner.spec != spec) continue;
    const auto parts = ParseCandidate(winner.candidate);
    if (parts.ok()) tiles.insert(parts->tile);
  }
  return {tiles.begin(), tiles.end()};
}

Winners WinnersOf(const std::vector<TuneRecord>& records) {
  using DeviceSpec = std::pair<std::string, std::string>;
  std::map<DeviceSpec, std::map<std::string, std::vector<TuneRecord>>> groups;
  for (const TuneRecord& record : records) {
    groups[{record.key.device, record.key.spec}][record.key.shape].push_back(
        record);
  }
  std::vector<Winner> winners;
  for (const auto& [device_spec, shapes] : groups) {
    std::vector<TuneRecord> all;
    for (const auto& [shape, of_shape] : shapes) {
      all.insert(all.end(), of_shape.begin(), of_shape.end());
      if (const auto fastest = ChooseFastest(of_shape)) {
        winners.push_back(WinnerOf(*fastest, shape));
      }
    }
    if (const auto any = ChooseForAnyShape(all)) {
      winners.push_back(WinnerOf(*any, ""));
    }
  }
  return Winners(std::move(winners));
}

}  // namespace kvforge
