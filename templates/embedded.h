// The device templates, linked into the library as text and looked up by the
// path that an #include names, such as "ops/softmax.cuh". Host code only.
#ifndef KVFORGE_TEMPLATES_EMBEDDED_H_
#define KVFORGE_TEMPLATES_EMBEDDED_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvforge {

// Both views have static storage and are NUL-terminated: data() can be handed
// to a C API.
struct EmbeddedFile {
  absl::string_view path;  // below templates/: "arch/sm80.cuh"
  absl::string_view text;
};

// Every .cuh and .h file below templates/ that device code may include, sorted
// by path in byte order.
absl::Span<const EmbeddedFile> EmbeddedFiles();

// The file of that path, or null.
const EmbeddedFile* FindEmbeddedFile(absl::string_view path);

}  // namespace kvforge

#endif  // KVFORGE_TEMPLATES_EMBEDDED_H_
