#include "compiler/emit/row_quantizers.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/diagnostics.h"
#include "compiler/dialect/kv_shapes.h"

namespace kvforge {
namespace {

using kv::ElementKind;

enum class Given { kNone, kTensor, kHead, kChannel };

// What a kv.quantize op's types say.
struct Rule {
  ElementKind element;
  Given given;
  int row_scales;  // f32 per row: a scale, then a minimum
  ElementKind block_element;
  int block;  // values of one block scale; 0 = none, block_element f32
  bool operator==(const Rule&) const = default;
};

struct RowQuantizer {
  llvm::StringLiteral format;
  Rule rule;
  llvm::StringLiteral name;
  llvm::StringLiteral header;
};

constexpr ElementKind kNoBlock = ElementKind::kF32;

constexpr RowQuantizer kQuantizers[] = {
    {"bf16",
     {ElementKind::kBf16, Given::kNone, 0, kNoBlock, 0},
     "Bf16Row",
     "formats/plain.cuh"},
    {"f16",
     {ElementKind::kF16, Given::kNone, 0, kNoBlock, 0},
     "F16Row",
     "formats/plain.cuh"},
    {"e4m3_tensor",
     {ElementKind::kE4m3, Given::kTensor, 0, kNoBlock, 0},
     "Fp8Tensor",
     "formats/fp8_given.cuh"},
    {"e4m3_head",
     {ElementKind::kE4m3, Given::kHead, 0, kNoBlock, 0},
     "Fp8Head",
     "formats/fp8_given.cuh"},
    {"e4m3_channel",
     {ElementKind::kE4m3, Given::kChannel, 0, kNoBlock, 0},
     "Fp8Channel",
     "formats/fp8_given.cuh"},
    {"e4m3_row",
     {ElementKind::kE4m3, Given::kNone, 1, kNoBlock, 0},
     "E4m3Row",
     "formats/e4m3_row.cuh"},
    {"e5m2_tensor",
     {ElementKind::kE5m2, Given::kTensor, 0, kNoBlock, 0},
     "Fp8Tensor",
     "formats/fp8_given.cuh"},
    {"int8_row",
     {ElementKind::kI8, Given::kNone, 1, kNoBlock, 0},
     "Int8Row",
     "formats/int8_row.cuh"},
    {"int4_row",
     {ElementKind::kU4, Given::kNone, 2, kNoBlock, 0},
     "Int4Row",
     "formats/int4_row.cuh"},
    {"nvfp4_row",
     {ElementKind::kE2m1, Given::kNone, 1, ElementKind::kE4m3, 16},
     "Nvfp4Row",
     "formats/nvfp4.cuh"},
    {"nvfp4",
     {ElementKind::kE2m1, Given::kTensor, 0, ElementKind::kE4m3, 16},
     "Nvfp4",
     "formats/nvfp4.cuh"},
    {"mxfp8",
     {ElementKind::kE4m3, Given::kNone, 0, ElementKind::kUe8m0, 32},
     "Mxfp8",
     "formats/mx.cuh"},
    {"mxfp4",
     {ElementKind::kE2m1, Given::kNone, 0, ElementKind::kUe8m0, 32},
     "Mxfp4",
     "formats/mx.cuh"},
};

Rule RuleOf(kv::QuantizeOp op) {
  Rule rule{op.getCodes().getType().getElement(), Given::kNone, 0, kNoBlock, 0};
  if (op.getGiven()) {
    constexpr Given kByDims[] = {Given::kTensor, Given::kHead, Given::kChannel};
    rule.given = kByDims[op.getGiven().getType().getDims().size()];
  }
  for (mlir::Value scale : op.getScales()) {
    const auto type = mlir::cast<kv::ScaleType>(scale.getType());
    if (type.getDims().size() == 1) {
      ++rule.row_scales;
    } else {
      rule.block = type.getDims().back().block;
      rule.block_element = type.getElement();
    }
  }
  return rule;
}

std::string FormatNames() {
  std::vector<std::string> names;
  for (const RowQuantizer& row : kQuantizers) names.push_back(row.format.str());
  return absl::StrJoin(names, ", ");
}

}  // namespace

absl::StatusOr<RowQuantizerUse> FindRowQuantizer(kv::QuantizeOp op) {
  const Rule rule = RuleOf(op);
  if (kv::ElementBits(rule.element) != 16 && !op.getEncoder()) {
    return absl::FailedPreconditionError(
        "emit: a kv.quantize without an encoder; supported is the IR behind "
        "kv-lower-codec; run it first");
  }
  for (const RowQuantizer& row : kQuantizers) {
    if (!(row.rule == rule)) continue;
    std::vector<std::string> encoders;
    for (std::optional<llvm::StringRef> encoder :
         {op.getScaleEncoder(), op.getEncoder()}) {
      if (encoder)
        encoders.push_back(absl::StrCat("formats::", View(*encoder)));
    }
    std::string type = absl::StrCat("formats::", View(row.name));
    if (!encoders.empty()) {
      absl::StrAppend(&type, "<", absl::StrJoin(encoders, ", "), ">");
    }
    return RowQuantizerUse{row.header.str(), type};
  }
  return absl::UnimplementedError(absl::StrCat(
      "kv.quantize to ", View(kv::ElementText(rule.element)), " with ",
      op.getScales().size(), " stored and ", op.getGiven() ? 1 : 0,
      " given scales has no template; row quantizers: ", FormatNames(),
      "; use one of these formats"));
}

}  // namespace kvforge
