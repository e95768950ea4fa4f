#include "compiler/emit/spec_block.h"

#include "absl/strings/str_cat.h"

namespace kvforge {
namespace {

absl::string_view DeviceName(kv::ElementKind element) {
  switch (element) {
    case kv::ElementKind::kF32:
      return "F32";
    case kv::ElementKind::kBf16:
      return "Bf16";
    case kv::ElementKind::kF16:
      return "F16";
    case kv::ElementKind::kE4m3:
      return "E4m3";
    default:
      llvm_unreachable("kv.mat has no other element");
  }
}

}  // namespace

void SpecBlock::Constant(absl::string_view name, int value) {
  absl::StrAppend(&text_, "constexpr int ", name, " = ", value, ";\n");
}

void SpecBlock::Constant(absl::string_view name, bool value) {
  absl::StrAppend(&text_, "constexpr bool ", name, " = ",
                  value ? "true" : "false", ";\n");
}

void SpecBlock::Alias(absl::string_view name, absl::string_view type) {
  absl::StrAppend(&text_, "using ", name, " = ", type, ";\n");
}

void SpecBlock::AddSpec(const KernelSpec& spec) {
  Constant("kHeadDim", spec.head_dim);
  if (spec.kernel == KernelKind::kMerge) return;
  Constant("kValueDim", spec.v_head_dim);
  if (spec.kernel == KernelKind::kDecode ||
      spec.kernel == KernelKind::kExtend) {
    Constant("kGroup", spec.group);  // q heads per kv head
  }
  Constant("kPageSize", spec.page_size);  // tokens
}

void SpecBlock::AddTile(const KernelSpec& spec, const Tile& tile) {
  Constant("kBlockM", tile.block_m);
  if (spec.kernel == KernelKind::kDecode ||
      spec.kernel == KernelKind::kExtend) {
    Constant("kBlockN", tile.block_n);
    Constant("kStages", tile.stages);
  }
  Constant("kWarps", tile.warps);
  if (spec.kernel == KernelKind::kExtend) {
    Constant("kWarpgroups", tile.warpgroups);
    Constant("kImages", tile.images);
  }
}

std::string DeviceElement(kv::ElementKind element) {
  return absl::StrCat("formats::", DeviceName(element));
}

std::string DeviceElement(DType type) {
  switch (type) {
    case DType::kF32:
      return DeviceElement(kv::ElementKind::kF32);
    case DType::kBf16:
      return DeviceElement(kv::ElementKind::kBf16);
    case DType::kF16:
      return DeviceElement(kv::ElementKind::kF16);
  }
  llvm_unreachable("every DType has a device type");
}

std::string DeviceOperand(kv::ElementKind operand) {
  return absl::StrCat("formats::", DeviceName(operand), "Operand");
}

}  // namespace kvforge
