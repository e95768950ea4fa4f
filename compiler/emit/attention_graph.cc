#include "compiler/emit/attention_graph.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/diagnostics.h"
#include "compiler/dialect/kv_shapes.h"
#include "compiler/passes/codec_table.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

using kv::Dim;
using kv::DimName;

// Channels of a block whose scale is a factor in f32.
constexpr int kFactorBlock = 32;

constexpr char kUseOther[] = "use a format that needs none";

absl::Status MissingPass(const std::string& found) {
  return absl::FailedPreconditionError(absl::StrCat(
      "emit: ", found,
      "; supported is the IR behind kv-place-scales and kv-lower-codec; run "
      "these passes first"));
}

// The op that defines `value` if it is an `Op`, else an error that says what it
// is; ops no template has are refused by name.
template <typename Op>
absl::StatusOr<Op> Producer(mlir::Value value) {
  mlir::Operation* op = value.getDefiningOp();
  if (auto wanted = mlir::dyn_cast_or_null<Op>(op)) return wanted;
  if (auto scale = mlir::dyn_cast_or_null<kv::ScaleOp>(op)) {
    return NoTemplate(
        op,
        absl::StrCat("a scale over '",
                     kv::DimsText(scale.getScale().getType().getDims()),
                     "' on an operand or on masked scores"),
        kUseOther);
  }
  return MissingPass(absl::StrCat(
      "expected ", View(Op::getOperationName()), ", found ",
      op ? View(op->getName().getStringRef()) : "a block argument"));
}

// Collects the ops of the given kinds that lead to `value`, first to last, and
// moves `value` to what they start from.
template <typename... Ops>
AttentionGraph::Ops TakeChain(mlir::Value& value) {
  AttentionGraph::Ops chain;
  while (mlir::isa_and_nonnull<Ops...>(value.getDefiningOp())) {
    chain.push_back(value.getDefiningOp());
    value = chain.back()->getOperand(0);
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

absl::StatusOr<CacheSide> ReadSide(kv::DotOp dot, llvm::StringRef side) {
  ASSIGN_OR_RETURN(const kv::DecodeOp decode,
                   Producer<kv::DecodeOp>(dot.getRhs()));
  CacheSide result{decode};
  if (!result.decode.getSequence()) {
    return MissingPass("a kv.decode without a sequence");
  }
  ASSIGN_OR_RETURN(const kv::LoadCodesOp codes,
                   Producer<kv::LoadCodesOp>(result.decode.getCodes()));
  if (kv::LoadCodesOp(codes).getSide() != side) {
    return MissingPass(absl::StrCat("the dot of side \"", View(side),
                                    "\" reads the other side's codes"));
  }
  if (mlir::Value scale = result.decode.getBlockScale()) {
    ASSIGN_OR_RETURN(const kv::LoadScaleOp load,
                     Producer<kv::LoadScaleOp>(scale));
    const auto dims = kv::LoadScaleOp(load).getType().getDims();
    const Dim* channel = kv::FindDim(
        dims, side == "k" ? DimName::kChannel : DimName::kValueChannel);
    if (!channel || channel->block == 1 || !kv::FindDim(dims, DimName::kKey)) {
      return NoTemplate(
          result.decode,
          absl::StrCat("an operand scale over '", kv::DimsText(dims), "'"),
          kUseOther);
    }
    result.block = channel->block;
  }
  return result;
}

// Checks the scales of a chain; true if one varies over the key.
absl::StatusOr<bool> HasRowScale(const AttentionGraph::Ops& chain,
                                 llvm::StringRef side) {
  int rows = 0;
  bool mapped = false;
  bool shifted = false;
  bool uniform = false;
  for (mlir::Operation* op : chain) {
    if (mlir::isa<kv::ShiftOp>(op)) {
      if (uniform) {
        return NoTemplate(op, "a minimum behind a uniform scale", kUseOther);
      }
      shifted = true;
      continue;
    }
    if (auto sum = mlir::dyn_cast<kv::SumOp>(op)) {
      return NoTemplate(
          op, absl::StrCat("a sum over ", View(sum.getDim()), " behind a dot"),
          kUseOther);
    }
    auto scale = mlir::dyn_cast<kv::ScaleOp>(op);
    if (!scale) {
      if (!mlir::cast<kv::MapOp>(op).getSoftcap()) {
        return NoTemplate(op, "alibi or score before another map or scale",
                          "make it the last op before kv.mask");
      }
      mapped = true;
      continue;
    }
    ASSIGN_OR_RETURN(const ScaleUse use, UseOf(scale, side));
    if (use == ScaleUse::kBlock) {
      return NoTemplate(op, "a block scale behind a dot", kUseOther);
    }
    uniform |= use == ScaleUse::kUniform;
    if (use == ScaleUse::kRow) {
      if (shifted) {
        return NoTemplate(op, "a row scale behind a minimum", kUseOther);
      }
      ++rows;
    } else if (mapped) {
      return NoTemplate(op, "a uniform scale behind kv.map",
                        "scale before mapping");
    }
  }
  if (rows > 1) {
    return NoTemplate(chain.front(), "two row scales on one side",
                      "store their product");
  }
  return rows == 1;
}

// True if a chain adds a side's minimum: kv.shift by the sum over `reduce` of
// `other`, times the minimum of each token.
absl::StatusOr<bool> HasRowMinimum(const AttentionGraph::Ops& chain,
                                   llvm::StringRef side, mlir::Value other,
                                   DimName reduce) {
  int minima = 0;
  for (mlir::Operation* op : chain) {
    auto shift = mlir::dyn_cast<kv::ShiftOp>(op);
    if (!shift) continue;
    // The scale and the sum commute where the minimum does not vary over
    // `reduce`.
    mlir::Value at = shift.getAddend();
    kv::LoadScaleOp minimum;
    bool summed = false;
    while (at != other) {
      mlir::Operation* step = at.getDefiningOp();
      if (auto sum = mlir::dyn_cast_or_null<kv::SumOp>(step)) {
        if (summed || sum.getDim() != Dim{reduce}.Text()) break;
        summed = true;
      } else if (auto scale = mlir::dyn_cast_or_null<kv::ScaleOp>(step)) {
        if (minimum) break;
        minimum = scale.getScale().getDefiningOp<kv::LoadScaleOp>();
        if (!minimum) break;
      } else {
        break;
      }
      at = step->getOperand(0);
    }
    const Dim key{DimName::kKey};
    if (at != other || !summed || !minimum || !minimum.getMinimum() ||
        minimum.getSide() != side ||
        minimum.getType().getDims() != llvm::ArrayRef<Dim>{key}) {
      return NoTemplate(shift, "an addend that is no minimum of tokens",
                        kUseOther);
    }
    ++minima;
  }
  if (minima > 1) {
    return NoTemplate(chain.front(), "two minima on one side",
                      "store their sum");
  }
  return minima == 1;
}

// Takes the scale of partial dots, and their sum, off the front of a chain.
absl::Status TakePartialDots(kv::DotOp dot, AttentionGraph::Ops& chain,
                             CacheSide& side) {
  if (dot.getReduce() == Dim{DimName::kChannel}.Text()) return absl::OkStatus();
  auto scale = chain.empty() ? kv::ScaleOp()
                             : mlir::dyn_cast<kv::ScaleOp>(chain.front());
  auto sum =
      chain.size() < 2 ? kv::SumOp() : mlir::dyn_cast<kv::SumOp>(chain[1]);
  if (!scale || !sum || sum.getDim() != dot.getReduce()) {
    return NoTemplate(dot, "partial dots that are not scaled once and summed",
                      kUseOther);
  }
  ASSIGN_OR_RETURN(const ScaleUse use, UseOf(scale, "k"));
  if (use != ScaleUse::kBlock) {
    return NoTemplate(scale, "partial dots without a scale of blocks",
                      kUseOther);
  }
  side.block = kFactorBlock;
  side.block_factor = scale.getScale().getDefiningOp<kv::LoadScaleOp>();
  chain.erase(chain.begin(), chain.begin() + 2);
  return absl::OkStatus();
}

// Takes the block scale of V off a chain of weights.
absl::Status TakeWeightBlocks(AttentionGraph::Ops& chain, CacheSide& side) {
  for (auto* at = chain.begin(); at != chain.end(); ++at) {
    auto scale = mlir::cast<kv::ScaleOp>(*at);
    ASSIGN_OR_RETURN(const ScaleUse use, UseOf(scale, "v"));
    if (use != ScaleUse::kBlock) continue;
    if (chain.size() > 1 || side.block != 0) {
      return NoTemplate(scale, "a block scale of p beside another scale",
                        kUseOther);
    }
    side.block = kFactorBlock;
    side.block_factor = scale.getScale().getDefiningOp<kv::LoadScaleOp>();
    chain.clear();
    break;
  }
  return absl::OkStatus();
}

bool IsChannelScale(mlir::Operation* op) {
  auto scale = mlir::dyn_cast_or_null<kv::ScaleOp>(op);
  return scale && scale.getScale().getDefiningOp<kv::ArgScaleOp>() &&
         kv::IsPerChannel(scale.getScale().getType().getDims());
}

// Takes V's given channel scale off what follows its dot.
absl::Status TakeChannelScale(AttentionGraph::Ops& chain, CacheSide& side) {
  AttentionGraph::Ops rest;
  for (mlir::Operation* op : chain) {
    if (!IsChannelScale(op)) {
      rest.push_back(op);
    } else if (side.channel_scale) {
      return NoTemplate(op, "two channel scales on one side",
                        "give their product");
    } else {
      side.channel_scale = true;
    }
  }
  chain = std::move(rest);
  return absl::OkStatus();
}

absl::Status CheckMinimum(const CacheSide& side) {
  if (side.row_minimum && side.channel_scale) {
    return NoTemplate(side.decode, "a minimum beside channel scales",
                      kUseOther);
  }
  if (!side.row_minimum || side.row_scale) return absl::OkStatus();
  return NoTemplate(side.decode, "a minimum without a row scale before it",
                    "store a scale of 1");
}

}  // namespace

absl::Status NoTemplate(mlir::Operation* op, const std::string& why,
                        const std::string& advice) {
  return absl::UnimplementedError(absl::StrCat(
      View(op->getName().getStringRef()), " has no template: ", why,
      "; templates serve scales over nothing, heads and tokens, given scales "
      "over heads and channels, minima over tokens, e4m3 block scales in the "
      "operand, and ue8m0 scales of "
      "blocks of 32 channels; ",
      advice));
}

absl::StatusOr<ScaleUse> UseOf(kv::ScaleOp scale, llvm::StringRef side) {
  const llvm::ArrayRef<Dim> dims = scale.getScale().getType().getDims();
  mlir::Operation* source = scale.getScale().getDefiningOp();
  if (kv::IsUniform(dims) &&
      mlir::isa<kv::ArgScaleOp, kv::ConstScaleOp>(source)) {
    return ScaleUse::kUniform;
  }
  auto load = mlir::dyn_cast<kv::LoadScaleOp>(source);
  if (dims == llvm::ArrayRef<Dim>{Dim{DimName::kKey}} && load &&
      load.getSide() == side && !load.getMinimum()) {
    return ScaleUse::kRow;
  }
  const DimName channel =
      side == "k" ? DimName::kChannel : DimName::kValueChannel;
  if (load && load.getSide() == side && !load.getMinimum() &&
      FactorFunction(load.getType().getElement()) &&
      dims ==
          llvm::ArrayRef<Dim>{Dim{DimName::kKey}, Dim{channel, kFactorBlock}}) {
    return ScaleUse::kBlock;
  }
  return NoTemplate(
      scale,
      absl::StrCat("a scale over '", kv::DimsText(dims), "' from ",
                   View(source->getName().getStringRef())),
      kUseOther);
}

absl::StatusOr<AttentionGraph> ReadAttention(kv::KernelOp kernel) {
  AttentionGraph graph;
  auto yield = mlir::cast<kv::YieldOp>(kernel.getBody().front().back());
  if (yield.getResults().size() != 2) {
    return MissingPass("a kv.yield without output and LSE");
  }
  ASSIGN_OR_RETURN(graph.softmax,
                   Producer<kv::SoftmaxOp>(yield.getResults()[1]));

  ASSIGN_OR_RETURN(graph.mask, Producer<kv::MaskOp>(graph.softmax.getScores()));
  mlir::Value scores = graph.mask.getInput();
  if (auto map = scores.getDefiningOp<kv::MapOp>(); map && !map.getSoftcap()) {
    graph.alibi = map.getAlibi();
    if (!graph.alibi) graph.score_map = map;
    scores = map.getInput();
  }
  graph.score_ops =
      TakeChain<kv::ScaleOp, kv::SumOp, kv::ShiftOp, kv::MapOp>(scores);
  ASSIGN_OR_RETURN(kv::DotOp score_dot, Producer<kv::DotOp>(scores));
  ASSIGN_OR_RETURN(graph.k, ReadSide(score_dot, "k"));
  RETURN_IF_ERROR(TakePartialDots(score_dot, graph.score_ops, graph.k));
  ASSIGN_OR_RETURN(graph.k.row_scale, HasRowScale(graph.score_ops, "k"));

  mlir::Value query = score_dot.getLhs();
  if (auto narrow = query.getDefiningOp<kv::NarrowOp>()) {
    graph.row_scaled_q = narrow.getRowScaled();
    query = narrow.getInput();
  }
  if (IsChannelScale(query.getDefiningOp())) {
    graph.k.channel_scale = true;
    query = query.getDefiningOp()->getOperand(0);
  }
  ASSIGN_OR_RETURN(graph.q, Producer<kv::LoadQOp>(query));
  ASSIGN_OR_RETURN(graph.k.row_minimum,
                   HasRowMinimum(graph.score_ops, "k", graph.q.getResult(),
                                 DimName::kChannel));
  RETURN_IF_ERROR(CheckMinimum(graph.k));

  mlir::Value out = yield.getResults()[0];
  graph.out_ops = TakeChain<kv::ScaleOp, kv::ShiftOp>(out);
  ASSIGN_OR_RETURN(kv::DotOp value_dot, Producer<kv::DotOp>(out));
  ASSIGN_OR_RETURN(graph.v, ReadSide(value_dot, "v"));
  RETURN_IF_ERROR(TakeChannelScale(graph.out_ops, graph.v));
  ASSIGN_OR_RETURN(const bool scaled_out, HasRowScale(graph.out_ops, ""));
  if (scaled_out) {
    return NoTemplate(graph.out_ops.front(), "a row scale on the output",
                      kUseOther);
  }

  mlir::Value weights = value_dot.getLhs();
  TakeChain<kv::NarrowOp>(weights);
  graph.weight_ops = TakeChain<kv::ScaleOp>(weights);
  RETURN_IF_ERROR(TakeWeightBlocks(graph.weight_ops, graph.v));
  ASSIGN_OR_RETURN(graph.v.row_scale, HasRowScale(graph.weight_ops, "v"));
  ASSIGN_OR_RETURN(const kv::SoftmaxOp source,
                   Producer<kv::SoftmaxOp>(weights));
  if (source != graph.softmax) {
    return MissingPass("output and LSE come from two softmaxes");
  }
  ASSIGN_OR_RETURN(graph.v.row_minimum,
                   HasRowMinimum(graph.out_ops, "v", graph.softmax.getWeights(),
                                 DimName::kKey));
  RETURN_IF_ERROR(CheckMinimum(graph.v));
  return graph;
}

}  // namespace kvforge
