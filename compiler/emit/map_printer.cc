#include "compiler/emit/map_printer.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/diagnostics.h"
#include "compiler/dialect/score_ops.h"
#include "compiler/passes/codec_table.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

// A uniform factor as an expression of ScoreUniform or OutUniform.
std::string Factor(kv::ScaleOp scale) {
  mlir::Operation* source = scale.getScale().getDefiningOp();
  if (auto constant = mlir::dyn_cast<kv::ConstScaleOp>(source)) {
    return PowerOfTwoLiteral(static_cast<int>(constant.getExponent()));
  }
  auto given = mlir::cast<kv::ArgScaleOp>(source);
  const llvm::StringRef argument = given.getArgument();
  for (const auto& [name, view] :
       {std::pair{"k_scale", "args.k"}, {"v_scale", "args.v"}}) {
    if (argument != name) continue;
    return given.getType().getDims().empty()
               ? absl::StrCat("formats::GivenScale(", view, ")")
               : absl::StrCat("formats::GivenHeadScale(", view, ", kv_head)");
  }
  return absl::StrCat("args.", View(argument));
}

// The uniform factors of a chain, in order.
absl::StatusOr<std::vector<std::string>> Factors(
    const AttentionGraph::Ops& chain, llvm::StringRef side) {
  std::vector<std::string> factors;
  for (mlir::Operation* op : chain) {
    auto scale = mlir::dyn_cast<kv::ScaleOp>(op);
    if (!scale) continue;
    ASSIGN_OR_RETURN(const ScaleUse use, UseOf(scale, side));
    if (use == ScaleUse::kUniform) factors.push_back(Factor(scale));
  }
  return factors;
}

// A parameter, its name in a comment if the body does not use it.
std::string Parameter(absl::string_view type, absl::string_view name,
                      bool used) {
  return used ? absl::StrCat(type, " ", name)
              : absl::StrCat(type, " /*", name, "*/");
}

// What BlockFactor does, or that it is declared only.
std::string BlockFactorBody(const CacheSide& side) {
  if (!side.block_factor) return ";\n";
  kv::LoadScaleOp scale = side.block_factor;
  return absl::StrCat(" {\n    return formats::",
                      View(FactorFunction(scale.getType().getElement())->name),
                      "(code);\n  }\n");
}

// The product of `factors`, starting from `start`.
std::string PrintUniform(absl::string_view name, absl::string_view variable,
                         absl::string_view start,
                         absl::Span<const std::string> factors) {
  std::string body = absl::StrCat("  float ", variable, " = ", start, ";\n");
  for (const std::string& factor : factors) {
    absl::StrAppend(&body, "  ", variable, " = ", variable, " * ", factor,
                    ";\n");
  }
  return absl::StrCat(
      "__device__ float ", name, "(",
      Parameter("const AttentionArgs&", "args",
                absl::StrContains(body, "args.")),
      ", ", Parameter("int", "kv_head", absl::StrContains(body, "kv_head")),
      ") {\n", body, "  return ", variable, ";\n}\n");
}

absl::StatusOr<std::string> PrintScoreMap(const AttentionGraph& graph,
                                          bool has_uniform) {
  std::string body = "  float s = dot;\n";
  bool uniform_pending = has_uniform;
  bool uniform_last = true;
  const auto multiply_uniform = [&] {
    if (uniform_pending) absl::StrAppend(&body, "  s = s * uniform;\n");
    uniform_pending = false;
  };
  for (mlir::Operation* op : graph.score_ops) {
    if (auto scale = mlir::dyn_cast<kv::ScaleOp>(op)) {
      ASSIGN_OR_RETURN(const ScaleUse use, UseOf(scale, "k"));
      if (use == ScaleUse::kRow) {
        absl::StrAppend(&body, "  s = s * k_row_scale;\n");
      }
    } else if (mlir::isa<kv::ShiftOp>(op)) {
      absl::StrAppend(&body, "  s = arch::Fma(q_sum, k_minimum, s);\n");
    } else {
      multiply_uniform();
      uniform_last = false;
      const float cap =
          mlir::cast<kv::MapOp>(op).getSoftcap()->convertToFloat();
      absl::StrAppend(&body, "  s = formats::Softcap(s, ", FloatLiteral(cap),
                      ");\n");
    }
  }
  multiply_uniform();
  return absl::StrCat("__device__ float ScoreMap(float dot, ",
                      Parameter("float", "uniform", has_uniform), ", ",
                      Parameter("float", "k_row_scale", graph.k.row_scale),
                      ",\n                          ",
                      Parameter("float", "q_sum", graph.k.row_minimum), ", ",
                      Parameter("float", "k_minimum", graph.k.row_minimum),
                      ") {\n", body,
                      "  return s;\n}\n// Whether ScoreMap multiplies by "
                      "`uniform` behind all else.\n"
                      "constexpr bool kUniformLast = ",
                      uniform_last ? "true" : "false", ";\n");
}

// The f32, i32 or i1 of an arith.constant as a literal.
std::string ConstantText(mlir::Attribute value) {
  if (auto number = mlir::dyn_cast<mlir::FloatAttr>(value)) {
    const float x = number.getValue().convertToFloat();
    if (std::isfinite(x)) return FloatLiteral(x);
    return absl::StrCat("arch::FromBits(0x",
                        absl::Hex(std::bit_cast<uint32_t>(x)), "u)");
  }
  const llvm::APInt integer = mlir::cast<mlir::IntegerAttr>(value).getValue();
  if (integer.getBitWidth() == 1) return integer.isZero() ? "false" : "true";
  // -2147483648 is no literal of int.
  if (integer.isMinSignedValue()) return "-2147483647 - 1";
  return absl::StrCat(integer.getSExtValue());
}

// UserScore: the operations of the user's function in order, or a declaration
// where there is none.
std::string PrintUserScore(kv::MapOp map) {
  std::string text = "__device__ float UserScore(";
  constexpr absl::string_view kArguments[] = {"float score", "i32 q_position",
                                              "i32 kv_position", "i32 q_head"};
  if (!map) {
    return absl::StrCat(text, absl::StrJoin(kArguments, ", "), ");\n");
  }
  mlir::Block& block = map.getScore().front();
  llvm::DenseMap<mlir::Value, std::string> names;
  std::vector<std::string> parameters;
  for (mlir::BlockArgument argument : block.getArguments()) {
    const auto [type, name] = std::pair<absl::string_view, absl::string_view>(
        absl::StrSplit(kArguments[argument.getArgNumber()], ' '));
    names[argument] = std::string(name);
    parameters.push_back(Parameter(type, name, !argument.use_empty()));
  }
  absl::StrAppend(&text, absl::StrJoin(parameters, ", "), ") {\n");
  const auto operands_of = [&](mlir::Operation& op) {
    std::vector<std::string> operands;
    for (mlir::Value operand : op.getOperands()) {
      operands.push_back(names[operand]);
    }
    return operands;
  };
  int count = 0;
  for (mlir::Operation& op : block.without_terminator()) {
    const std::string name = absl::StrCat("v", count++);
    names[op.getResult(0)] = name;
    absl::StrAppend(
        &text, "  const ", View(kv::ScoreTypeText(op.getResult(0).getType())),
        " ", name, " = ",
        op.getNumOperands() == 0 ? ConstantText(op.getAttr("value"))
                                 : kv::ScoreOpText(&op, operands_of(op)),
        ";\n");
  }
  return absl::StrCat(text, "  return ", operands_of(block.back())[0],
                      ";\n}\n");
}

}  // namespace

std::string FloatLiteral(float value) {
  char buffer[32];
  const std::to_chars_result result =
      std::to_chars(buffer, buffer + sizeof(buffer), value);
  const absl::string_view text(buffer, result.ptr - buffer);
  const bool whole = text.find_first_of(".e") == absl::string_view::npos;
  return absl::StrCat(text, whole ? ".0f" : "f");
}

std::string PowerOfTwoLiteral(int exponent) {
  return absl::StrCat("0x1p", exponent, "f");
}

absl::string_view FourCodesText(int code_bits) {
  return code_bits == 4 ? "The codes in lo's low (hi 0) or high nibbles"
                        : "Four codes in consecutive bits of (lo, hi)";
}

std::string PrintSide(const CacheSide& side, absl::string_view name) {
  kv::DecodeOp decode = side.decode;
  const int bits = kv::ElementBits(decode.getCodes().getType().getElement());
  const bool uses_hi = bits != 8;
  const bool blocks = side.block > 0 && !side.block_factor;  // in the operand
  std::string text = absl::StrCat(
      "struct ", name, " {\n", "  static constexpr int kCodeBits = ", bits,
      ";\n",
      "  static constexpr bool kRowScale = ", side.row_scale ? "true" : "false",
      ";\n", "  static constexpr bool kRowMinimum = ",
      side.row_minimum ? "true" : "false", ";\n",
      "  static constexpr bool kChannelScale = ",
      side.channel_scale ? "true" : "false", ";  // given\n",
      "  static constexpr int kBlock = ", side.block, ";\n",
      "  // Whether Decode4 multiplies by block scales; else they are "
      "factors.\n",
      "  static constexpr bool kBlockInOperand = ", blocks ? "true" : "false",
      ";\n",
      "  // A block scale code to the factor of a partial dot or a weight.\n",
      "  static __device__ float BlockFactor(u32 code)", BlockFactorBody(side),
      "  // Two block scale codes to a pair of operands.\n",
      "  static __device__ u32 BlockScalePair(u32 first, u32 second)");
  if (blocks) {
    absl::StrAppend(
        &text, " {\n    return formats::", View(*decode.getScaleSequence()),
        "(first, second);\n  }\n");
  } else {
    absl::StrAppend(&text, ";\n");
  }
  if (decode.getType().getElement() == kv::ElementKind::kE4m3) {
    return absl::StrCat(
        text, "  // Declared only: codes are operands as they are.\n",
        "  static __device__ void Decode4(u32 lo, u32 hi, u32 block_scales, "
        "u32 (&out)[2]);\n};\n");
  }
  absl::StrAppend(
      &text, "  // ", FourCodesText(bits), " to two pairs of operands.\n",
      "  static __device__ void Decode4(u32 lo, ",
      Parameter("u32", "hi", uses_hi), ", ",
      Parameter("u32", "block_scales", blocks), ", u32 (&out)[2]) {\n",
      "    formats::", View(*decode.getSequence()),
      uses_hi ? "(lo, hi, out);\n" : "(lo, out);\n");
  if (blocks) {
    absl::StrAppend(&text,
                    "    out[0] = arch::MulF16x2(out[0], block_scales);\n"
                    "    out[1] = arch::MulF16x2(out[1], block_scales);\n");
  }
  return absl::StrCat(text, "  }\n};\n");
}

absl::StatusOr<std::string> PrintMaps(const AttentionGraph& graph) {
  using Strings = std::vector<std::string>;
  ASSIGN_OR_RETURN(const Strings score, Factors(graph.score_ops, "k"));
  ASSIGN_OR_RETURN(const Strings weight, Factors(graph.weight_ops, "v"));
  ASSIGN_OR_RETURN(const Strings out, Factors(graph.out_ops, "v"));
  if (!weight.empty()) {
    return NoTemplate(graph.weight_ops.front(), "a uniform scale on p",
                      "scale the output instead");
  }
  ASSIGN_OR_RETURN(const std::string score_map,
                   PrintScoreMap(graph, !score.empty()));
  const absl::string_view score_start =
      score.empty() ? absl::string_view("1.0f") : score.front();
  return absl::StrCat(
      "// One value for all keys of a query row.\n",
      PrintUniform("ScoreUniform", "s", score_start,
                   absl::MakeConstSpan(score).subspan(score.empty() ? 0 : 1)),
      "// One score, natural units, from the dot of q and k; q_sum is the sum "
      "of "
      "q's channels.\n",
      score_map, "// The user's function of a score; kScoreFunction only.\n",
      PrintUserScore(graph.score_map),
      "// The weight of one V row from the unscaled softmax weight.\n",
      "__device__ float ValueWeight(float p, ",
      Parameter("float", "v_row_scale", graph.v.row_scale), ") {\n",
      graph.v.row_scale ? "  p = p * v_row_scale;\n" : "", "  return p;\n}\n",
      "constexpr bool kValueWeightScaled = ",
      graph.v.row_scale ? "true" : "false",
      ";  // ValueWeight depends on the key\n",
      "// One value for all elements of an output row.\n",
      PrintUniform("OutUniform", "o", "1.0f", out));
}

}  // namespace kvforge
