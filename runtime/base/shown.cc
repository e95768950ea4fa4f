#include "runtime/base/shown.h"

#include "absl/strings/str_cat.h"

namespace kvforge {

std::string Shown(absl::string_view text) {
  if (text.size() <= kMostShownBytes) return std::string(text);
  size_t end = kMostShownBytes;
  // Bytes 10xxxxxx go on with a character.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return absl::StrCat(text.substr(0, end), "... (", text.size(), " bytes)");
}

}  // namespace kvforge
