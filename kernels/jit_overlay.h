// The device templates that a compile sees: the embedded ones, with those of an
// overlay folder in place of the ones of the same path.
#ifndef KVFORGE_KERNELS_JIT_OVERLAY_H_
#define KVFORGE_KERNELS_JIT_OVERLAY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kvforge {

struct TemplateFile {
  std::string path;  // below templates/: "arch/sm80.cuh"
  std::string text;
};

// `overlay` "": the embedded files. kInvalidArgument for a folder that cannot
// be read, or a .cuh or .h file in it that replaces nothing.
absl::StatusOr<std::vector<TemplateFile>> TemplateFiles(
    const std::string& overlay);

}  // namespace kvforge

#endif  // KVFORGE_KERNELS_JIT_OVERLAY_H_
