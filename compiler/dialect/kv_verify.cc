// Verifiers of the kv operations: dimension names and elements.
#include "compiler/dialect/kv_dialect.h"
#include "compiler/dialect/kv_shapes.h"
#include "compiler/dialect/score_ops.h"

namespace kvforge::kv {
namespace {

constexpr Dim kM{DimName::kQuery}, kN{DimName::kKey}, kD{DimName::kChannel},
    kE{DimName::kValueChannel}, kS{DimName::kSplit};

Dim ChannelOf(llvm::StringRef side) { return side == "k" ? kD : kE; }

// Demands that `type` is `dims` of one of `elements`.
mlir::LogicalResult Expect(mlir::Operation* op, llvm::StringRef what,
                           MatType type, llvm::ArrayRef<Dim> dims,
                           llvm::ArrayRef<ElementKind> elements) {
  if (type.getDims() == dims &&
      llvm::is_contained(elements, type.getElement())) {
    return mlir::success();
  }
  mlir::InFlightDiagnostic error = op->emitOpError()
                                   << what << " is " << type << ", not '"
                                   << DimsText(dims) << "' of ";
  llvm::interleave(
      elements, error, [&](ElementKind e) { error << ElementText(e); }, " or ");
  return error;
}

mlir::LogicalResult ExpectF32(mlir::Operation* op, llvm::StringRef what,
                              MatType type, llvm::ArrayRef<Dim> dims) {
  return Expect(op, what, type, dims, {ElementKind::kF32});
}

constexpr ElementKind kRowElements[] = {ElementKind::kF32, ElementKind::kBf16,
                                        ElementKind::kF16};
constexpr ElementKind kOperandElements[] = {
    ElementKind::kF16, ElementKind::kBf16, ElementKind::kE4m3};

mlir::LogicalResult ExpectSide(mlir::Operation* op, llvm::StringRef side,
                               llvm::ArrayRef<Dim> dims) {
  const Dim other = ChannelOf(side == "k" ? "v" : "k");
  if (!FindDim(dims, other.name)) return mlir::success();
  return op->emitOpError() << "side \"" << side << "\" has channels "
                           << ChannelOf(side).Text() << ", not "
                           << other.Text();
}

}  // namespace

mlir::LogicalResult KernelOp::verifyRegions() {
  mlir::Block& block = getBody().front();
  if (block.getNumArguments() != 0) {
    return emitOpError()
           << "has block arguments; kernels take launch arguments "
              "by name (kv.arg_scale)";
  }
  return mlir::success();
}

mlir::LogicalResult LoadQOp::verify() {
  return Expect(*this, "result", getResult().getType(), {kM, kD}, kRowElements);
}

mlir::LogicalResult LoadCodesOp::verify() {
  return ExpectSide(*this, getSide(), getResult().getType().getDims());
}

mlir::LogicalResult LoadScaleOp::verify() {
  const ScaleType type = getResult().getType();
  const Dim channel = ChannelOf(getSide());
  if (mlir::failed(ExpectSide(*this, getSide(), type.getDims()))) {
    return mlir::failure();
  }
  if (IsUniform(type.getDims()) || !Covers({kN, channel}, type.getDims())) {
    return emitOpError()
           << "a stored scale varies over tokens (n) or channels ("
           << channel.Text() << "), not over '" << DimsText(type.getDims())
           << "'; use kv.arg_scale for a given one";
  }
  if (getMinimum() && type.getElement() != ElementKind::kF32) {
    return emitOpError() << "a minimum is f32, not "
                         << ElementText(type.getElement());
  }
  return mlir::success();
}

mlir::LogicalResult ArgScaleOp::verify() {
  if (!llvm::is_contained({"sm_scale", "k_scale", "v_scale"}, getArgument())) {
    return emitOpError() << "no launch argument is called \"" << getArgument()
                         << "\"; arguments: sm_scale, k_scale, v_scale";
  }
  const ScaleType type = getResult().getType();
  const llvm::ArrayRef<Dim> dims = type.getDims();
  const bool own_channels = IsPerChannel(dims) && getArgument() != "sm_scale" &&
                            dims[1] == ChannelOf(getArgument().take_front(1));
  if ((!IsUniform(dims) && !own_channels) ||
      type.getElement() != ElementKind::kF32) {
    return emitOpError() << "a launch argument is one f32, one per kv head or "
                            "one per kv head and channel of its side, not "
                         << type;
  }
  return mlir::success();
}

mlir::LogicalResult ConstScaleOp::verify() {
  const ScaleType type = getResult().getType();
  if (!type.getDims().empty() || type.getElement() != ElementKind::kF32) {
    return emitOpError() << "is one f32, not " << type;
  }
  const int64_t exponent = getExponent();
  if (exponent < -126 || exponent > 127) {
    return emitOpError() << "exponent " << exponent
                         << " is outside [-126, 127], the normal f32 range";
  }
  return mlir::success();
}

mlir::LogicalResult DequantOp::verify() {
  const llvm::ArrayRef<Dim> dims = getCodes().getType().getDims();
  for (mlir::Value scale : getScales()) {
    const auto type = mlir::cast<ScaleType>(scale.getType());
    if (!Covers(dims, type.getDims())) {
      return emitOpError() << "scale varies over '" << DimsText(type.getDims())
                           << "', which is not within '" << DimsText(dims)
                           << "' of the codes";
    }
  }
  if (getMinimum() && !Covers(dims, getMinimum().getType().getDims())) {
    return emitOpError() << "minimum varies over '"
                         << DimsText(getMinimum().getType().getDims())
                         << "', which is not within '" << DimsText(dims)
                         << "' of the codes";
  }
  return ExpectF32(*this, "result", getResult().getType(), dims);
}

mlir::LogicalResult DecodeOp::verify() {
  const llvm::ArrayRef<Dim> dims = getCodes().getType().getDims();
  if (getBlockScale() && !Covers(dims, getBlockScale().getType().getDims())) {
    return emitOpError() << "block scale varies over '"
                         << DimsText(getBlockScale().getType().getDims())
                         << "', which is not within '" << DimsText(dims)
                         << "' of the codes";
  }
  if (!getSequence()) {
    if (getScaleSequence()) {
      return emitOpError() << "has a scale_sequence without a sequence";
    }
    return ExpectF32(*this, "result without a sequence", getResult().getType(),
                     dims);
  }
  if (static_cast<bool>(getBlockScale()) != getScaleSequence().has_value()) {
    return emitOpError() << "a block scale and a scale_sequence come together";
  }
  return Expect(*this, "result of a sequence", getResult().getType(), dims,
                kOperandElements);
}

mlir::LogicalResult NarrowOp::verify() {
  return Expect(*this, "result", getResult().getType(),
                getInput().getType().getDims(), kOperandElements);
}

mlir::LogicalResult DotOp::verify() {
  const std::optional<Dim> reduce = ParseDim(getReduce());
  if (!reduce) return emitOpError() << "reduces over no dimension";
  const llvm::ArrayRef<Dim> lhs = getLhs().getType().getDims();
  const llvm::ArrayRef<Dim> rhs = getRhs().getType().getDims();
  const std::optional<Dims> dims = DotDims(lhs, rhs, *reduce);
  if (!dims) {
    return emitOpError() << "'" << DimsText(lhs) << "' and '" << DimsText(rhs)
                         << "' have no dot over " << reduce->Text()
                         << ": both need the whole dimension, and share no "
                            "other";
  }
  return ExpectF32(*this, "result", getResult().getType(), *dims);
}

mlir::LogicalResult ScaleOp::verify() {
  const llvm::ArrayRef<Dim> input = getInput().getType().getDims();
  const llvm::ArrayRef<Dim> scale = getScale().getType().getDims();
  const std::optional<Dims> dims = ScaledDims(input, scale);
  if (!dims) {
    return emitOpError() << "'" << DimsText(input)
                         << "' is too coarse for a scale over '"
                         << DimsText(scale) << "'";
  }
  return ExpectF32(*this, "result", getResult().getType(), *dims);
}

mlir::LogicalResult SumOp::verify() {
  const std::optional<Dim> dim = ParseDim(getDim());
  const llvm::ArrayRef<Dim> input = getInput().getType().getDims();
  const std::optional<Dims> dims = dim ? SummedDims(input, *dim) : std::nullopt;
  if (!dims) {
    return emitOpError() << "'" << DimsText(input) << "' has no dimension "
                         << getDim();
  }
  return ExpectF32(*this, "result", getResult().getType(), *dims);
}

mlir::LogicalResult ShiftOp::verify() {
  const MatType input = getInput().getType();
  const llvm::ArrayRef<Dim> addend = getAddend().getType().getDims();
  if (!Covers(input.getDims(), addend)) {
    return emitOpError() << "addend varies over '" << DimsText(addend)
                         << "', which is not within '"
                         << DimsText(input.getDims()) << "'";
  }
  return ExpectF32(*this, "input", input, input.getDims());
}

mlir::LogicalResult MapOp::verify() {
  if (getSoftcap().has_value() + getAlibi() + !getScore().empty() != 1) {
    return emitOpError() << "is one of softcap, alibi and score; write one "
                            "kv.map each";
  }
  if (const std::optional<llvm::APFloat> cap = getSoftcap();
      cap && (!cap->isFinite() || cap->isZero() || cap->isNegative())) {
    return emitOpError() << "softcap is not positive and finite";
  }
  const MatType input = getInput().getType();
  return ExpectF32(*this, "input", input, input.getDims());
}

mlir::LogicalResult MapOp::verifyRegions() {
  return getScore().empty() ? mlir::success()
                            : VerifyScoreFunction(*this, getScore());
}

mlir::LogicalResult MaskOp::verify() {
  if (getWindow() && *getWindow() < 1) {
    return emitOpError() << "a window has at least 1 key";
  }
  if (getSelected() && *getSelected() < 1) {
    return emitOpError() << "a selected block has at least 1 key";
  }
  if (getCausal() && getCustom()) {
    return emitOpError() << "is causal and custom; a custom mask replaces the "
                            "causal one; write one of them";
  }
  return ExpectF32(*this, "input", getInput().getType(), {kM, kN});
}

mlir::LogicalResult SoftmaxOp::verify() {
  const MatType scores = getScores().getType();
  const std::optional<Dim> dim = ParseDim(getDim());
  const std::optional<Dims> rest =
      dim ? SummedDims(scores.getDims(), *dim) : std::nullopt;
  if (!rest) {
    return emitOpError() << "'" << DimsText(scores.getDims())
                         << "' has no dimension " << getDim();
  }
  if (mlir::failed(ExpectF32(*this, "input", scores, scores.getDims()))) {
    return mlir::failure();
  }
  return ExpectF32(*this, "lse", getLse().getType(), *rest);
}

mlir::LogicalResult LoadRowsOp::verify() {
  return Expect(*this, "result", getResult().getType(),
                {kN, ChannelOf(getSide())}, kRowElements);
}

mlir::LogicalResult QuantizeOp::verify() {
  const llvm::ArrayRef<Dim> rows = getRows().getType().getDims();
  if (getCodes().getType().getDims() != rows) {
    return emitOpError() << "codes are '"
                         << DimsText(getCodes().getType().getDims())
                         << "', the rows '" << DimsText(rows) << "'";
  }
  for (mlir::Value scale : getScales()) {
    const auto dims = mlir::cast<ScaleType>(scale.getType()).getDims();
    if (!FindDim(dims, DimName::kKey) || !Covers(rows, dims)) {
      return emitOpError() << "a scale found from rows varies over tokens and "
                              "at most blocks of channels, not over '"
                           << DimsText(dims) << "'";
    }
  }
  if (getGiven() && !IsUniform(getGiven().getType().getDims()) &&
      !IsPerChannel(getGiven().getType().getDims())) {
    return emitOpError()
           << "a given scale is one value, one per kv head or one "
              "per kv head and channel, not "
           << getGiven().getType();
  }
  return mlir::success();
}

mlir::LogicalResult StoreCodesOp::verify() {
  return ExpectSide(*this, getSide(), getCodes().getType().getDims());
}

mlir::LogicalResult StoreRowsOp::verify() {
  return ExpectF32(*this, "input", getRows().getType(),
                   {kN, ChannelOf(getSide())});
}

mlir::LogicalResult LoadPartialsOp::verify() {
  if (mlir::failed(
          ExpectF32(*this, "output", getOut().getType(), {kS, kM, kE}))) {
    return mlir::failure();
  }
  return ExpectF32(*this, "lse", getLse().getType(), {kS, kM});
}

mlir::LogicalResult MergeOp::verify() {
  const std::optional<Dim> dim = ParseDim(getDim());
  const std::optional<Dims> out =
      dim ? SummedDims(getOut().getType().getDims(), *dim) : std::nullopt;
  const std::optional<Dims> lse =
      dim ? SummedDims(getLse().getType().getDims(), *dim) : std::nullopt;
  if (!out || !lse) {
    return emitOpError() << "output and lse must both have dimension "
                         << getDim();
  }
  if (mlir::failed(
          ExpectF32(*this, "output", getMergedOut().getType(), *out))) {
    return mlir::failure();
  }
  return ExpectF32(*this, "lse", getMergedLse().getType(), *lse);
}

}  // namespace kvforge::kv
