#include "compiler/dialect/kv_shapes.h"
#include "compiler/passes/exactness.h"
#include "compiler/passes/passes.h"
#include "mlir/IR/Builders.h"

namespace kvforge {

#define GEN_PASS_DEF_KVPLACESCALES
#include "compiler/passes/Passes.h.inc"

namespace {

using kv::Dim;
using kv::DimName;
using kv::Dims;

enum class Place {
  kResult,        // constant along the reduction: past the dot
  kOtherOperand,  // varies along it: into the other operand, before the dot
  kOperand,       // varies over both sides, exact beside the codes: stays
  kPartialDot,    // varies over both, in blocks of the reduction
  kNowhere,       // one value per element
};

// Where a scale of codes goes past a dot over `reduce`; `exact` if its product
// with the codes fits an operand.
Place PlaceOf(llvm::ArrayRef<Dim> scale, DimName reduce, bool exact) {
  const Dim* reduced = kv::FindDim(scale, reduce);
  if (!reduced) return Place::kResult;
  const auto kept = [&](const Dim& dim) {
    return dim.name != reduce && dim.name != DimName::kHead;
  };
  if (llvm::none_of(scale, kept)) return Place::kOtherOperand;
  if (exact) return Place::kOperand;
  if (reduced->block > 1) return Place::kPartialDot;
  // Blocks of output columns share a scaled copy of the other operand; one
  // copy per column would be no dot.
  const bool per_block = llvm::all_of(
      scale, [&](const Dim& dim) { return !kept(dim) || dim.block > 1; });
  return per_block ? Place::kOtherOperand : Place::kNowhere;
}

// The scales and the minimum of one dequant, by place.
struct Placement {
  llvm::SmallVector<mlir::Value> result, other, partial;
  mlir::Value operand;  // at most one
  Dim partial_reduce;   // of the partial dots, if there are any
};

class Rewriter {
 public:
  Rewriter(kv::DotOp dot, bool dequant_is_rhs)
      : dot_(dot),
        dequant_is_rhs_(dequant_is_rhs),
        builder_(dot),
        loc_(dot.getLoc()),
        reduce_(*kv::ParseDim(dot.getReduce())) {}

  mlir::LogicalResult Run(kv::DequantOp dequant) {
    if (reduce_.block != 1) {
      return dot_.emitOpError()
             << "is partial before scales are placed; write reduce("
             << Dim{reduce_.name}.Text() << ")";
    }
    Placement placement{.partial_reduce = reduce_};
    if (mlir::failed(Decide(dequant, placement))) return mlir::failure();

    const kv::MatType decoded_type = dequant.getType();
    mlir::Value decoded = kv::DecodeOp::create(
        builder_, loc_, decoded_type, dequant.getCodes(), placement.operand,
        mlir::StringAttr(), mlir::StringAttr());
    const mlir::Value plain_other = Other();
    mlir::Value other = plain_other;
    for (mlir::Value scale : placement.other) other = Scaled(other, scale);

    mlir::Value result = Dot(other, decoded, placement.partial_reduce);
    for (mlir::Value scale : placement.partial) result = Scaled(result, scale);
    if (placement.partial_reduce != reduce_) {
      result = Summed(result, placement.partial_reduce);
    }
    for (mlir::Value scale : placement.result) result = Scaled(result, scale);
    if (dequant.getMinimum()) {
      result = kv::ShiftOp::create(builder_, loc_, result.getType(), result,
                                   Shift(plain_other, dequant.getMinimum()));
    }
    dot_.getResult().replaceAllUsesWith(result);
    dot_.erase();
    return mlir::success();
  }

 private:
  mlir::LogicalResult Decide(kv::DequantOp dequant, Placement& placement) {
    NumberSet operand = NumbersOf(dequant.getCodes().getType().getElement());
    for (mlir::Value scale : dequant.getScales()) {
      const auto type = mlir::cast<kv::ScaleType>(scale.getType());
      const NumberSet product = Product(operand, NumbersOf(type.getElement()));
      const bool exact = !placement.operand && FitsAnOperand(product);
      switch (PlaceOf(type.getDims(), reduce_.name, exact)) {
        case Place::kResult:
          placement.result.push_back(scale);
          break;
        case Place::kOtherOperand:
          placement.other.push_back(scale);
          break;
        case Place::kOperand:
          placement.operand = scale;
          operand = product;
          break;
        case Place::kPartialDot: {
          const Dim blocks = *kv::FindDim(type.getDims(), reduce_.name);
          if (placement.partial_reduce != reduce_ &&
              placement.partial_reduce != blocks) {
            return dequant.emitOpError()
                   << "has scales over " << placement.partial_reduce.Text()
                   << " and over " << blocks.Text()
                   << "; one block length can be summed apart; use one";
          }
          placement.partial_reduce = blocks;
          placement.partial.push_back(scale);
          break;
        }
        case Place::kNowhere:
          return dequant.emitOpError()
                 << "has a scale over '" << kv::DimsText(type.getDims())
                 << "', one value per element; a dot over "
                 << Dim{reduce_.name}.Text()
                 << " absorbs scales over its sides or over blocks; store the "
                    "product as codes of a wider element instead";
      }
    }
    return mlir::success();
  }

  mlir::Value Other() {
    return dequant_is_rhs_ ? dot_.getLhs() : dot_.getRhs();
  }

  kv::MatType F32(llvm::ArrayRef<Dim> dims) {
    return kv::MatType::get(dot_.getContext(), dims, kv::ElementKind::kF32);
  }
  static llvm::ArrayRef<Dim> DimsOf(mlir::Value value) {
    return mlir::cast<kv::MatType>(value.getType()).getDims();
  }

  mlir::Value Scaled(mlir::Value value, mlir::Value scale) {
    const Dims dims = *kv::ScaledDims(
        DimsOf(value), mlir::cast<kv::ScaleType>(scale.getType()).getDims());
    return kv::ScaleOp::create(builder_, loc_, F32(dims), value, scale);
  }
  mlir::Value Summed(mlir::Value value, Dim dim) {
    return kv::SumOp::create(builder_, loc_,
                             F32(*kv::SummedDims(DimsOf(value), dim)), value,
                             dim.Text());
  }
  mlir::Value Dot(mlir::Value other, mlir::Value decoded, Dim reduce) {
    mlir::Value lhs = dequant_is_rhs_ ? other : decoded;
    mlir::Value rhs = dequant_is_rhs_ ? decoded : other;
    const Dims dims = *kv::DotDims(DimsOf(lhs), DimsOf(rhs), reduce);
    return kv::DotOp::create(builder_, loc_, F32(dims), lhs, rhs,
                             reduce.Text());
  }
  // sum over the reduction of other * minimum.
  mlir::Value Shift(mlir::Value other, mlir::Value minimum) {
    const auto dims = mlir::cast<kv::ScaleType>(minimum.getType()).getDims();
    if (kv::FindDim(dims, reduce_.name)) {
      return Summed(Scaled(other, minimum), reduce_);
    }
    mlir::Value sum = Summed(other, reduce_);
    return Scaled(sum, minimum);
  }

  kv::DotOp dot_;
  bool dequant_is_rhs_;
  mlir::OpBuilder builder_;
  mlir::Location loc_;
  Dim reduce_;
};

class PlaceScales : public impl::KvPlaceScalesBase<PlaceScales> {
  void runOnOperation() override {
    llvm::SmallVector<kv::DequantOp> dequants;
    getOperation().walk(
        [&](kv::DequantOp dequant) { dequants.push_back(dequant); });
    for (kv::DequantOp dequant : dequants) {
      if (mlir::failed(Place(dequant))) signalPassFailure();
    }
  }

  static mlir::LogicalResult Place(kv::DequantOp dequant) {
    const auto is_written = [](mlir::Operation* user) {
      return mlir::isa<kv::StoreRowsOp>(user);
    };
    if (!dequant->use_empty() &&
        llvm::all_of(dequant->getUsers(), is_written)) {
      return mlir::success();
    }
    for (mlir::Operation* user : dequant->getUsers()) {
      if (!mlir::isa<kv::DotOp>(user)) {
        return user->emitOpError()
               << "uses dequantized codes, which exist only as operands of "
                  "kv.dot; put the op behind the dot";
      }
    }
    while (!dequant->use_empty()) {
      mlir::OpOperand& use = *dequant->use_begin();
      Rewriter rewriter(mlir::cast<kv::DotOp>(use.getOwner()),
                        use.getOperandNumber() == 1);
      if (mlir::failed(rewriter.Run(dequant))) return mlir::failure();
    }
    dequant.erase();
    return mlir::success();
  }
};

}  // namespace
}  // namespace kvforge
