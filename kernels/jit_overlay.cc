#include "kernels/jit_overlay.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status_macros.h"
#include "templates/embedded.h"

namespace kvforge {

absl::StatusOr<std::vector<TemplateFile>> TemplateFiles(
    const std::string& overlay) {
  namespace fs = std::filesystem;
  std::vector<TemplateFile> files;
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    files.push_back({std::string(file.path), std::string(file.text)});
  }
  if (overlay.empty()) return files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(overlay, error), end;
       !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    if (!it->is_regular_file(error)) continue;
    if (path.extension() != ".cuh" && path.extension() != ".h") continue;
    const std::string name = path.lexically_relative(overlay).generic_string();
    const auto replaced = std::find_if(
        files.begin(), files.end(),
        [&](const TemplateFile& file) { return file.path == name; });
    if (replaced == files.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "templates folder ", overlay, ": ", name,
          " replaces no template; a file must have the relative path of one, "
          "such as kernels/decode.cuh; move it or take it out"));
    }
    ASSIGN_OR_RETURN(replaced->text, ReadFile(path.string()));
  }
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("templates folder ", overlay, ": ", error.message(),
                     "; it must be a readable folder; correct "
                     "KVFORGE_TEMPLATES or unset it"));
  }
  return files;
}

}  // namespace kvforge
