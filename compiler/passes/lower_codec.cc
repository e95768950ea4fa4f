#include "absl/strings/str_cat.h"
#include "compiler/diagnostics.h"
#include "compiler/dialect/kv_shapes.h"
#include "compiler/passes/codec_table.h"
#include "compiler/passes/passes.h"
#include "compiler/spec/kernel_spec.h"
#include "compiler/target/target.h"
#include "mlir/IR/Builders.h"

namespace kvforge {

#define GEN_PASS_DEF_KVLOWERCODEC
#include "compiler/passes/Passes.h.inc"

namespace {

using kv::ElementKind;

// `value` in the operand type. A row of f32 or bf16 may leave f16's range
// unless it is softmax weights, which are in [0, 1]; e4m3's precision is worth
// a factor for each row of either.
mlir::Value Narrowed(mlir::OpBuilder& builder, mlir::Value value,
                     ElementKind operand) {
  const auto type = mlir::cast<kv::MatType>(value.getType());
  if (type.getElement() == operand) return value;
  const bool weights = value.getDefiningOp<kv::SoftmaxOp>() != nullptr;
  const bool row_scaled = operand == ElementKind::kE4m3 ||
                          (operand == ElementKind::kF16 && !weights);
  return kv::NarrowOp::create(
      builder, value.getLoc(),
      kv::MatType::get(builder.getContext(), type.getDims(), operand), value,
      row_scaled);
}

// Multiplies `result`, or what it is scaled and summed to, by 2^exponent: into
// a constant that is there, else after the first uniform scale, else at once.
void Repay(mlir::OpBuilder& builder, mlir::Value result, int exponent) {
  if (exponent == 0) return;
  mlir::Value after = result;
  for (mlir::Value at = result; at.hasOneUse();) {
    mlir::Operation* user = *at.user_begin();
    auto scale = mlir::dyn_cast<kv::ScaleOp>(user);
    if (!scale && !mlir::isa<kv::SumOp>(user)) break;
    at = user->getResult(0);
    if (!scale || !kv::IsUniform(scale.getScale().getType().getDims()))
      continue;
    if (auto constant = scale.getScale().getDefiningOp<kv::ConstScaleOp>()) {
      constant.setExponent(constant.getExponent() + exponent);
      return;
    }
    after = at;
    break;
  }
  builder.setInsertionPointAfterValue(after);
  const mlir::Location loc = result.getLoc();
  auto constant = kv::ConstScaleOp::create(
      builder, loc,
      kv::ScaleType::get(builder.getContext(), {}, ElementKind::kF32),
      builder.getI64IntegerAttr(exponent));
  auto scaled =
      kv::ScaleOp::create(builder, loc, after.getType(), after, constant);
  after.replaceAllUsesExcept(scaled.getResult(), scaled);
}

// Gives the decode its operand type, and the other operands of its dots.
void SetOperand(kv::DecodeOp decode, const DecodeChoice& choice) {
  mlir::OpBuilder builder(decode);
  const ElementKind operand = choice.codes->operand;
  decode.setSequence(choice.codes->name);
  if (choice.scales) decode.setScaleSequence(choice.scales->name);
  decode.getResult().setType(kv::MatType::get(
      decode.getContext(), decode.getType().getDims(), operand));
  for (mlir::OpOperand& use : decode->getUses()) {
    auto dot = mlir::dyn_cast<kv::DotOp>(use.getOwner());
    if (!dot) continue;
    mlir::OpOperand& other = dot->getOpOperand(1 - use.getOperandNumber());
    builder.setInsertionPoint(dot);
    other.set(Narrowed(builder, other.get(), operand));
    Repay(builder, dot.getResult(), choice.RepayExponent());
  }
}

// Codes of an fp8 dot.
absl::Status LeaveUndecoded(kv::DecodeOp decode, const GpuTarget& target) {
  const ElementKind element = decode.getCodes().getType().getElement();
  const CodecFunction* row = UndecodedOperand(element, target);
  if (!row || decode.getBlockScale()) {
    return absl::UnimplementedError(absl::StrCat(
        "compute=fp8: ", target.name, " has no products that take codes of ",
        View(kv::ElementText(element)),
        decode.getBlockScale() ? " with block scales" : "",
        " undecoded; supported: e4m3 without block scales on GPUs with "
        "products of warpgroups; leave compute out"));
  }
  SetOperand(decode, {row, nullptr});
  return absl::OkStatus();
}

absl::Status LowerDecode(kv::DecodeOp decode, Compute compute,
                         const GpuTarget& target) {
  if (compute == Compute::kFp8) return LeaveUndecoded(decode, target);
  const ElementKind element = decode.getCodes().getType().getElement();
  std::optional<ElementKind> block_scale;
  if (decode.getBlockScale()) {
    block_scale = decode.getBlockScale().getType().getElement();
  }
  const std::optional<DecodeChoice> choice =
      ChooseDecode(element, block_scale, target);
  if (!choice) {
    std::string what = kv::ElementText(element).str();
    if (block_scale) {
      what += " with a block scale of " + kv::ElementText(*block_scale).str();
    }
    return NoFunction("decodes", what, target, DecodableElements());
  }
  SetOperand(decode, *choice);
  return absl::OkStatus();
}

absl::Status LowerDequant(kv::DequantOp dequant, const GpuTarget& target) {
  const ElementKind element = dequant.getCodes().getType().getElement();
  const std::optional<DecodeChoice> choice =
      ChooseDecode(element, std::nullopt, target);
  if (!choice) {
    return NoFunction("decodes", View(kv::ElementText(element)), target,
                      DecodableElements());
  }
  dequant.setSequence(choice->codes->name);
  return absl::OkStatus();
}

absl::Status LowerQuantize(kv::QuantizeOp quantize, const GpuTarget& target) {
  const ElementKind element = quantize.getCodes().getType().getElement();
  if (kv::ElementBits(element) == 16) return absl::OkStatus();
  const CodecFunction* encoder = ChooseEncode(element, target);
  if (!encoder) {
    return NoFunction("encodes", View(kv::ElementText(element)), target,
                      EncodableElements());
  }
  quantize.setEncoder(encoder->name);
  for (mlir::Value scale : quantize.getScales()) {
    const ElementKind kind =
        mlir::cast<kv::ScaleType>(scale.getType()).getElement();
    if (kind == ElementKind::kF32) continue;
    const CodecFunction* scale_encoder = ChooseEncode(kind, target);
    if (!scale_encoder) {
      return NoFunction("encodes", View(kv::ElementText(kind)), target,
                        EncodableElements());
    }
    quantize.setScaleEncoder(scale_encoder->name);
  }
  return absl::OkStatus();
}

class LowerCodec : public impl::KvLowerCodecBase<LowerCodec> {
 public:
  using KvLowerCodecBase::KvLowerCodecBase;

  void runOnOperation() override {
    const absl::StatusOr<const GpuTarget*> target = FindTarget(gpu);
    if (!target.ok()) return Refuse(getOperation(), target.status());
    // A kernel without a spec, in a test of this pass, has 16-bit operands.
    const absl::StatusOr<KernelSpec> spec = SpecOf(getOperation());
    const Compute compute = spec.ok() ? spec->compute : Compute::k16Bit;
    llvm::SmallVector<mlir::Operation*> ops;
    getOperation().walk([&](mlir::Operation* op) { ops.push_back(op); });
    for (mlir::Operation* op : ops) {
      absl::Status status;
      if (auto decode = mlir::dyn_cast<kv::DecodeOp>(op)) {
        status = LowerDecode(decode, compute, **target);
      } else if (auto dequant = mlir::dyn_cast<kv::DequantOp>(op)) {
        status = LowerDequant(dequant, **target);
      } else if (auto quantize = mlir::dyn_cast<kv::QuantizeOp>(op)) {
        status = LowerQuantize(quantize, **target);
      }
      if (!status.ok()) Refuse(op, status);
    }
  }

 private:
  void Refuse(mlir::Operation* op, const absl::Status& status) {
    EmitStatus(op, status);
    signalPassFailure();
  }
};

}  // namespace
}  // namespace kvforge
