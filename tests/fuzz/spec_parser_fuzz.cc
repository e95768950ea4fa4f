// ParseSpec and ParseTile take any text: an error, or a value whose canonical
// text parses to the same value.
#include <cstdint>
#include <cstdlib>

#include "compiler/spec/kernel_spec.h"
#include "compiler/tile/tile.h"
#include "compiler/tile/tile_selector.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvforge;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  if (const absl::StatusOr<Tile> tile = ParseTile(text); tile.ok()) {
    const absl::StatusOr<Tile> again = ParseTile(tile->Text());
    if (!again.ok() || !(*again == *tile)) std::abort();
  }
  const absl::StatusOr<KernelSpec> spec = ParseSpec(text);
  if (!spec.ok()) {
    if (spec.status().message().empty()) std::abort();
    return 0;
  }
  const absl::StatusOr<KernelSpec> again = ParseSpec(spec->Text());
  if (!again.ok() || !(*again == *spec)) std::abort();
  // What parses is valid, and has a tile or a refusal with a reason.
  if (!ValidateSpec(*spec).ok()) std::abort();
  const auto choice = SelectTile(*spec, **FindTarget("sm_86"));
  if (!choice.ok() && choice.status().message().empty()) std::abort();
  return 0;
}
