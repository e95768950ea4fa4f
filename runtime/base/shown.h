// What an error message repeats of a user's text.
#ifndef KVFORGE_RUNTIME_BASE_SHOWN_H_
#define KVFORGE_RUNTIME_BASE_SHOWN_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace kvforge {

// Longer than any SPEC with every key.
inline constexpr size_t kMostShownBytes = 200;

// `text`, or its first kMostShownBytes and its length: a message stays readable
// whatever was passed. Never ends inside a UTF-8 character.
std::string Shown(absl::string_view text);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_BASE_SHOWN_H_
