#include "compiler/dialect/build_ir.h"

#include <string>

#include "compiler/dialect/kv_dialect.h"
#include "compiler/dialect/kv_shapes.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

namespace kvforge {
namespace {

using kv::Dim;
using kv::DimName;
using kv::ElementKind;

constexpr Dim kM{DimName::kQuery}, kN{DimName::kKey}, kD{DimName::kChannel},
    kE{DimName::kValueChannel}, kH{DimName::kHead}, kS{DimName::kSplit};

ElementKind KindOf(Element element) {
  switch (element) {
    case Element::kBf16:
      return ElementKind::kBf16;
    case Element::kF16:
      return ElementKind::kF16;
    case Element::kE4m3:
      return ElementKind::kE4m3;
    case Element::kE5m2:
      return ElementKind::kE5m2;
    case Element::kE2m1:
      return ElementKind::kE2m1;
    case Element::kInt8:
      return ElementKind::kI8;
    case Element::kUint4:
      return ElementKind::kU4;
  }
  llvm_unreachable("every Element has a kind");
}

ElementKind KindOf(DType type) {
  switch (type) {
    case DType::kF32:
      return ElementKind::kF32;
    case DType::kBf16:
      return ElementKind::kBf16;
    case DType::kF16:
      return ElementKind::kF16;
  }
  llvm_unreachable("every DType has a kind");
}

class Builder {
 public:
  Builder(const KernelSpec& spec, mlir::MLIRContext& context,
          mlir::Region* score)
      : spec_(spec),
        score_(score),
        builder_(&context),
        loc_(builder_.getUnknownLoc()) {}

  mlir::OwningOpRef<mlir::ModuleOp> Build() {
    mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(loc_);
    builder_.setInsertionPointToEnd(module->getBody());
    auto kernel = kv::KernelOp::create(
        builder_, loc_, std::string(KernelName(spec_.kernel)),
        builder_.getStringAttr(spec_.Text()), mlir::StringAttr());
    builder_.setInsertionPointToEnd(&kernel.getBody().emplaceBlock());
    switch (spec_.kernel) {
      case KernelKind::kStore:
        BuildStore();
        break;
      case KernelKind::kDecode:
      case KernelKind::kExtend:
        BuildAttention();
        break;
      case KernelKind::kMerge:
        BuildMerge();
        break;
      case KernelKind::kGather:
        BuildGather();
        break;
    }
    return module;
  }

 private:
  kv::MatType Mat(llvm::ArrayRef<Dim> dims,
                  ElementKind element = ElementKind::kF32) {
    return kv::MatType::get(builder_.getContext(), dims, element);
  }
  kv::ScaleType Scale(llvm::ArrayRef<Dim> dims,
                      ElementKind element = ElementKind::kF32) {
    return kv::ScaleType::get(builder_.getContext(), dims, element);
  }
  kv::CodesType Codes(Dim channel, const KvFormat& format) {
    return kv::CodesType::get(builder_.getContext(), {kN, channel},
                              KindOf(format.element));
  }
  static Dim ChannelOf(llvm::StringRef side) { return side == "k" ? kD : kE; }

  // Type of a format's stored block scales.
  kv::ScaleType BlockScaleType(Dim channel, const KvFormat& format) {
    return Scale({kN, Dim{channel.name, format.block}},
                 format.block_scale == BlockScale::kE4m3 ? ElementKind::kE4m3
                                                         : ElementKind::kUe8m0);
  }

  // The given scale of a side, or null.
  mlir::Value GivenScaleOf(llvm::StringRef side, const KvFormat& format) {
    if (format.given_scale == GivenScale::kNone) return {};
    kv::Dims dims;
    if (format.given_scale != GivenScale::kTensor) dims.push_back(kH);
    if (format.given_scale == GivenScale::kChannel) {
      dims.push_back(ChannelOf(side));
    }
    return kv::ArgScaleOp::create(builder_, loc_, Scale(dims),
                                  builder_.getStringAttr(side + "_scale"));
  }

  // One side of the cache, dequantized.
  mlir::Value Dequantized(llvm::StringRef side, const KvFormat& format) {
    const Dim channel = ChannelOf(side);
    auto codes =
        kv::LoadCodesOp::create(builder_, loc_, Codes(channel, format), side);
    llvm::SmallVector<mlir::Value> scales;
    if (format.block_scale != BlockScale::kNone) {
      scales.push_back(kv::LoadScaleOp::create(
          builder_, loc_, BlockScaleType(channel, format), side, false));
    }
    mlir::Value minimum;
    if (format.row_scale != RowScale::kNone) {
      scales.push_back(
          kv::LoadScaleOp::create(builder_, loc_, Scale({kN}), side, false));
    }
    if (format.row_scale == RowScale::kF32AndMinimum) {
      minimum =
          kv::LoadScaleOp::create(builder_, loc_, Scale({kN}), side, true);
    }
    if (mlir::Value given = GivenScaleOf(side, format)) scales.push_back(given);
    return kv::DequantOp::create(builder_, loc_, Mat({kN, channel}), codes,
                                 scales, minimum, mlir::StringAttr());
  }

  // Null for 0.
  mlir::IntegerAttr OptionalCount(int64_t value) {
    return value ? builder_.getI64IntegerAttr(value) : mlir::IntegerAttr();
  }

  // A map with a copy of the score function's body.
  mlir::Value ScoreFunction(mlir::Value input) {
    auto map = kv::MapOp::create(builder_, loc_, input.getType(), input,
                                 mlir::FloatAttr(), /*alibi=*/false);
    mlir::IRMapping mapping;
    score_->cloneInto(&map.getScore(), mapping);
    mlir::Operation* last = &map.getScore().front().back();
    mlir::OpBuilder at(last);
    kv::ReturnOp::create(at, loc_, last->getOperand(0));
    last->erase();
    map.getScore().walk([&](mlir::Operation* op) { op->setLoc(loc_); });
    return map;
  }

  void BuildAttention() {
    mlir::Value q =
        kv::LoadQOp::create(builder_, loc_, Mat({kM, kD}, KindOf(spec_.type)));
    mlir::Value k = Dequantized("k", *spec_.k_format);
    mlir::Value s = kv::DotOp::create(builder_, loc_, Mat({kM, kN}), q, k, "d");
    mlir::Value sm_scale =
        kv::ArgScaleOp::create(builder_, loc_, Scale({}), "sm_scale");
    s = kv::ScaleOp::create(builder_, loc_, Mat({kM, kN}), s, sm_scale);
    if (spec_.softcap != 0) {
      s = kv::MapOp::create(builder_, loc_, s.getType(), s,
                            builder_.getF32FloatAttr(spec_.softcap),
                            /*alibi=*/false);
    }
    if (spec_.alibi) {
      s = kv::MapOp::create(builder_, loc_, s.getType(), s, mlir::FloatAttr(),
                            /*alibi=*/true);
    }
    if (!spec_.score.empty()) s = ScoreFunction(s);
    s = kv::MaskOp::create(
        builder_, loc_, s.getType(), s, spec_.mask == MaskKind::kCausal,
        spec_.mask == MaskKind::kCustom, OptionalCount(spec_.window),
        OptionalCount(spec_.sparse_block));
    auto softmax = kv::SoftmaxOp::create(builder_, loc_, Mat({kM, kN}),
                                         Mat({kM}), s, "n", spec_.sinks);
    mlir::Value v = Dequantized("v", *spec_.v_format);
    mlir::Value o = kv::DotOp::create(builder_, loc_, Mat({kM, kE}),
                                      softmax.getWeights(), v, "n");
    kv::YieldOp::create(builder_, loc_, mlir::ValueRange{o, softmax.getLse()});
  }

  void BuildStoreSide(llvm::StringRef side, const KvFormat& format) {
    const Dim channel = ChannelOf(side);
    mlir::Value rows = kv::LoadRowsOp::create(
        builder_, loc_, Mat({kN, channel}, KindOf(spec_.type)), side);
    llvm::SmallVector<mlir::Type> scales;
    if (format.block_scale != BlockScale::kNone) {
      scales.push_back(BlockScaleType(channel, format));
    }
    if (format.row_scale != RowScale::kNone) scales.push_back(Scale({kN}));
    if (format.row_scale == RowScale::kF32AndMinimum) {
      scales.push_back(Scale({kN}));
    }
    auto quantized = kv::QuantizeOp::create(
        builder_, loc_, Codes(channel, format), scales, rows,
        GivenScaleOf(side, format), mlir::StringAttr(), mlir::StringAttr());
    kv::StoreCodesOp::create(builder_, loc_, side, quantized.getCodes(),
                             quantized.getScales());
  }

  void BuildStore() {
    BuildStoreSide("k", *spec_.k_format);
    BuildStoreSide("v", *spec_.v_format);
    kv::YieldOp::create(builder_, loc_, mlir::ValueRange{});
  }

  void BuildGather() {
    kv::StoreRowsOp::create(builder_, loc_, "k",
                            Dequantized("k", *spec_.k_format));
    kv::StoreRowsOp::create(builder_, loc_, "v",
                            Dequantized("v", *spec_.v_format));
    kv::YieldOp::create(builder_, loc_, mlir::ValueRange{});
  }

  void BuildMerge() {
    auto partials = kv::LoadPartialsOp::create(
        builder_, loc_, Mat({kS, kM, kE}), Mat({kS, kM}));
    auto merged =
        kv::MergeOp::create(builder_, loc_, Mat({kM, kE}), Mat({kM}),
                            partials.getOut(), partials.getLse(), "s");
    kv::YieldOp::create(builder_, loc_, merged->getResults());
  }

  const KernelSpec& spec_;
  mlir::Region* score_;
  mlir::OpBuilder builder_;
  mlir::Location loc_;
};

}  // namespace

mlir::OwningOpRef<mlir::ModuleOp> BuildIr(const KernelSpec& spec,
                                          mlir::MLIRContext& context,
                                          mlir::Region* score) {
  return Builder(spec, context, score).Build();
}

}  // namespace kvforge
