// The block of named constants and aliases at the head of an emitted text.
#ifndef KVFORGE_COMPILER_EMIT_SPEC_BLOCK_H_
#define KVFORGE_COMPILER_EMIT_SPEC_BLOCK_H_

#include <string>

#include "absl/strings/string_view.h"
#include "compiler/dialect/kv_types.h"
#include "compiler/spec/kernel_spec.h"
#include "compiler/tile/tile.h"

namespace kvforge {

class SpecBlock {
 public:
  void Constant(absl::string_view name, int value);
  void Constant(absl::string_view name, bool value);
  void Alias(absl::string_view name, absl::string_view type);

  // Sizes, group and page size of the spec that its kernel's template reads.
  void AddSpec(const KernelSpec& spec);
  void AddTile(const KernelSpec& spec, const Tile& tile);

  const std::string& Text() const { return text_; }

 private:
  std::string text_;
};

// Device types, from templates/formats.
std::string DeviceElement(kv::ElementKind element);  // "formats::Bf16"
std::string DeviceElement(DType type);
std::string DeviceOperand(kv::ElementKind operand);  // "formats::F16Operand"

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_EMIT_SPEC_BLOCK_H_
