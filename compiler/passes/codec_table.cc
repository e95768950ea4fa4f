#include "compiler/passes/codec_table.h"

#include <vector>

#include "compiler/passes/exactness.h"
#include "llvm/ADT/STLExtras.h"

namespace kvforge {
namespace {

using kv::ElementKind;

constexpr CodecFunction kDecode[] = {
    {ElementKind::kBf16, ElementKind::kBf16, "PassThrough4",
     "formats/plain.cuh", nullptr, 0},
    {ElementKind::kF16, ElementKind::kF16, "PassThrough4", "formats/plain.cuh",
     nullptr, 0},
    {ElementKind::kE4m3, ElementKind::kF16, "E4m3ToF16Hardware4",
     "formats/e4m3_hardware.cuh", &GpuTarget::has_e4m3_convert, 0},
    // Seven bits moved into an f16 keep the exponent field: 15 - 7 too low.
    {ElementKind::kE4m3, ElementKind::kF16, "E4m3ToF16Placed4",
     "formats/e4m3.cuh", nullptr, 8},
    {ElementKind::kE5m2, ElementKind::kF16, "E5m2ToF16Placed4",
     "formats/e5m2.cuh", nullptr, 0},
    {ElementKind::kI8, ElementKind::kF16, "Int8ToF16Offset4",
     "formats/int8.cuh", nullptr, 0},
    {ElementKind::kU4, ElementKind::kF16, "Uint4ToF16Offset4",
     "formats/uint4.cuh", nullptr, 0},
    {ElementKind::kE2m1, ElementKind::kF16, "E2m1ToF16Hardware4",
     "formats/e2m1_hardware.cuh", &GpuTarget::has_e2m1_convert, 0},
    // Three bits moved into an f16 likewise: 15 - 1 too low.
    {ElementKind::kE2m1, ElementKind::kF16, "E2m1ToF16Placed4",
     "formats/e2m1.cuh", nullptr, 14},
};

constexpr CodecFunction kScale[] = {
    {ElementKind::kE4m3, ElementKind::kF16, "E4m3ScalePairHardware",
     "formats/e4m3_hardware.cuh", &GpuTarget::has_e4m3_convert, 0},
    {ElementKind::kE4m3, ElementKind::kF16, "E4m3ScalePairPlaced",
     "formats/e4m3.cuh", nullptr, 0},
    {ElementKind::kUe8m0, ElementKind::kF32, "Ue8m0ToF32", "formats/ue8m0.cuh",
     nullptr, 0},
};

constexpr CodecFunction kEncode[] = {
    {ElementKind::kE4m3, ElementKind::kF32, "E4m3EncodeHardware",
     "formats/e4m3_hardware.cuh", &GpuTarget::has_e4m3_convert, 0},
    {ElementKind::kE4m3, ElementKind::kF32, "E4m3EncodePlaced",
     "formats/e4m3.cuh", nullptr, 0},
    {ElementKind::kE5m2, ElementKind::kF32, "E5m2EncodeHardware",
     "formats/e5m2_hardware.cuh", &GpuTarget::has_e4m3_convert, 0},
    {ElementKind::kE5m2, ElementKind::kF32, "E5m2EncodePlaced",
     "formats/e5m2.cuh", nullptr, 0},
    {ElementKind::kI8, ElementKind::kF32, "Int8Encode", "formats/int8.cuh",
     nullptr, 0},
    {ElementKind::kU4, ElementKind::kF32, "Uint4Encode", "formats/uint4.cuh",
     nullptr, 0},
    {ElementKind::kE2m1, ElementKind::kF32, "E2m1EncodeHardware",
     "formats/e2m1_hardware.cuh", &GpuTarget::has_e2m1_convert, 0},
    {ElementKind::kE2m1, ElementKind::kF32, "E2m1EncodePlaced",
     "formats/e2m1.cuh", nullptr, 0},
    {ElementKind::kUe8m0, ElementKind::kF32, "Ue8m0EncodeCeil",
     "formats/ue8m0.cuh", nullptr, 0},
};

// No function: an operand type whose products take codes as they are.
constexpr CodecFunction kUndecoded[] = {
    {ElementKind::kE4m3, ElementKind::kE4m3, "E4m3Operand",
     "formats/e4m3_operand.cuh", &GpuTarget::has_warpgroup_products, 0},
};

NumberSet Decoded(const CodecFunction& function) {
  return Shifted(NumbersOf(function.element), -function.repay_exponent);
}

std::string Elements(llvm::ArrayRef<CodecFunction> functions) {
  std::vector<ElementKind> seen;
  std::string text;
  for (const CodecFunction& function : functions) {
    if (llvm::is_contained(seen, function.element)) continue;
    seen.push_back(function.element);
    if (!text.empty()) text += ", ";
    text += kv::ElementText(function.element).str();
  }
  return text;
}

}  // namespace

llvm::ArrayRef<CodecFunction> DecodeFunctions() { return kDecode; }
llvm::ArrayRef<CodecFunction> ScaleFunctions() { return kScale; }
llvm::ArrayRef<CodecFunction> EncodeFunctions() { return kEncode; }

const CodecFunction* FindCodecFunction(llvm::StringRef name) {
  for (llvm::ArrayRef<CodecFunction> list :
       {DecodeFunctions(), ScaleFunctions(), EncodeFunctions(),
        llvm::ArrayRef<CodecFunction>(kUndecoded)}) {
    for (const CodecFunction& function : list) {
      if (function.name == name) return &function;
    }
  }
  return nullptr;
}

bool IsAvailable(const CodecFunction& function, const GpuTarget& target) {
  return !function.instruction || target.*function.instruction;
}

std::optional<DecodeChoice> ChooseDecode(ElementKind element,
                                         std::optional<ElementKind> block_scale,
                                         const GpuTarget& target) {
  for (const CodecFunction& codes : DecodeFunctions()) {
    if (codes.element != element || !IsAvailable(codes, target)) continue;
    const NumberSet values = Decoded(codes);
    if (!IsExactIn(values, codes.operand)) continue;
    if (!block_scale) return DecodeChoice{&codes, nullptr};
    for (const CodecFunction& scales : ScaleFunctions()) {
      if (scales.element != *block_scale || scales.operand != codes.operand ||
          !IsAvailable(scales, target)) {
        continue;
      }
      if (IsExactIn(Decoded(scales), codes.operand) &&
          IsExactIn(Product(values, Decoded(scales)), codes.operand)) {
        return DecodeChoice{&codes, &scales};
      }
    }
  }
  return std::nullopt;
}

const CodecFunction* FactorFunction(ElementKind scale) {
  for (const CodecFunction& function : ScaleFunctions()) {
    if (function.element == scale && function.operand == ElementKind::kF32) {
      return &function;
    }
  }
  return nullptr;
}

const CodecFunction* UndecodedOperand(ElementKind element,
                                      const GpuTarget& target) {
  for (const CodecFunction& row : kUndecoded) {
    if (row.element == element && IsAvailable(row, target)) return &row;
  }
  return nullptr;
}

const CodecFunction* ChooseEncode(ElementKind element,
                                  const GpuTarget& target) {
  for (const CodecFunction& function : EncodeFunctions()) {
    if (function.element == element && IsAvailable(function, target)) {
      return &function;
    }
  }
  return nullptr;
}

std::string DecodableElements() { return Elements(DecodeFunctions()); }

std::string EncodableElements() {
  return "bf16, f16, " + Elements(EncodeFunctions());
}

}  // namespace kvforge
