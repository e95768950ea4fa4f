#include "runtime/cache/why_miss.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kvforge {
namespace {

std::string FieldText(const KeyFields& key, absl::string_view field) {
  if (field == "schema") return absl::StrCat(key.schema);
  if (field == "spec") return key.spec;
  if (field == "tile") return key.tile;
  if (field == "arch") return key.arch;
  if (field == "options") return absl::StrJoin(key.options, " ");
  return key.build_id;
}

}  // namespace

MissReport WhyMiss(const KeyFields& key,
                   const std::vector<ListedEntry>& listed) {
  const ListedEntry* nearest = nullptr;
  std::pair<size_t, bool> least = {std::numeric_limits<size_t>::max(), true};
  for (const ListedEntry& item : listed) {
    if (!item.entry.ok()) continue;
    const std::pair<size_t, bool> distance = {
        DifferingFields(key, item.entry->key).size(),
        item.entry->key.spec != key.spec};
    if (distance < least) {
      least = distance;
      nearest = &item;
    }
  }
  MissReport report;
  if (nearest == nullptr) return report;
  report.path = nearest->path;
  report.hit = nearest->entry->key == key;
  for (const absl::string_view field :
       DifferingFields(key, nearest->entry->key)) {
    report.differences.push_back(
        absl::StrCat(field, ": asked ", FieldText(key, field), ", entry has ",
                     FieldText(nearest->entry->key, field)));
  }
  return report;
}

}  // namespace kvforge
