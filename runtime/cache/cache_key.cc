#include "runtime/cache/cache_key.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/digest.h"

namespace kvforge {
namespace {

void UpdateNumber(Sha256& digest, uint64_t number) {
  char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(number >> (8 * i));
  digest.Update(absl::string_view(bytes, sizeof(bytes)));
}

void UpdatePart(Sha256& digest, absl::string_view part) {
  UpdateNumber(digest, part.size());
  digest.Update(part);
}

}  // namespace

std::string KeyDigest(const KeyFields& key) {
  Sha256 digest;
  UpdatePart(digest, "kvforge cache key");
  UpdateNumber(digest, static_cast<uint64_t>(key.schema));
  UpdatePart(digest, key.spec);
  UpdatePart(digest, key.tile);
  UpdatePart(digest, key.arch);
  UpdateNumber(digest, key.options.size());
  for (const std::string& option : key.options) UpdatePart(digest, option);
  UpdatePart(digest, key.build_id);
  return digest.FinishHex();
}

std::string KeyText(const KeyFields& key) {
  return absl::StrCat("spec=", key.spec, " tile=", key.tile, " arch=", key.arch,
                      " options=\"", absl::StrJoin(key.options, " "),
                      "\" build_id=", key.build_id, " schema=", key.schema);
}

std::vector<absl::string_view> DifferingFields(const KeyFields& a,
                                               const KeyFields& b) {
  std::vector<absl::string_view> names;
  if (a.schema != b.schema) names.push_back("schema");
  if (a.spec != b.spec) names.push_back("spec");
  if (a.tile != b.tile) names.push_back("tile");
  if (a.arch != b.arch) names.push_back("arch");
  if (a.options != b.options) names.push_back("options");
  if (a.build_id != b.build_id) names.push_back("build_id");
  return names;
}

}  // namespace kvforge
