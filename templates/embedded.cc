#include "templates/embedded.h"

#include <algorithm>

namespace kvforge {

const EmbeddedFile* FindEmbeddedFile(absl::string_view path) {
  const absl::Span<const EmbeddedFile> files = EmbeddedFiles();
  const auto at =
      std::lower_bound(files.begin(), files.end(), path,
                       [](const EmbeddedFile& file, absl::string_view wanted) {
                         return file.path < wanted;
                       });
  return at != files.end() && at->path == path ? at : nullptr;
}

}  // namespace kvforge
