#include "compiler/dialect/score_ops.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "llvm/ADT/STLExtras.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"

namespace kvforge::kv {
namespace {

// Types by letter: f = f32, i = i32, b = i1.
struct ScoreOp {
  llvm::StringLiteral name;
  llvm::StringLiteral operands;
  char result;
  const char* text;  // of $0, $1, $2
};

// formats:: are templates/formats/score_math.cuh.
constexpr ScoreOp kScoreOps[] = {
    {"arith.addf", "ff", 'f', "$0 + $1"},
    {"arith.addi", "ii", 'i', "formats::AddI32($0, $1)"},
    {"arith.andi", "bb", 'b', "$0 && $1"},
    {"arith.andi", "ii", 'i', "$0 & $1"},
    {"arith.divf", "ff", 'f', "$0 / $1"},
    {"arith.divsi", "ii", 'i', "formats::DivI32($0, $1)"},
    {"arith.extsi", "b", 'i', "$0 ? -1 : 0"},
    {"arith.extui", "b", 'i', "$0 ? 1 : 0"},
    {"arith.fptosi", "f", 'i', "formats::ToI32($0)"},
    {"arith.maximumf", "ff", 'f', "arch::MaxNan($0, $1)"},
    {"arith.maxnumf", "ff", 'f', "arch::Max($0, $1)"},
    {"arith.maxsi", "ii", 'i', "$0 > $1 ? $0 : $1"},
    {"arith.minimumf", "ff", 'f', "-arch::MaxNan(-$0, -$1)"},
    {"arith.minnumf", "ff", 'f', "arch::Min($0, $1)"},
    {"arith.minsi", "ii", 'i', "$0 < $1 ? $0 : $1"},
    {"arith.mulf", "ff", 'f', "$0 * $1"},
    {"arith.muli", "ii", 'i', "formats::MulI32($0, $1)"},
    {"arith.negf", "f", 'f', "-$0"},
    {"arith.ori", "bb", 'b', "$0 || $1"},
    {"arith.ori", "ii", 'i', "$0 | $1"},
    {"arith.remsi", "ii", 'i', "formats::RemI32($0, $1)"},
    {"arith.select", "bbb", 'b', "$0 ? $1 : $2"},
    {"arith.select", "bff", 'f', "$0 ? $1 : $2"},
    {"arith.select", "bii", 'i', "$0 ? $1 : $2"},
    {"arith.shli", "ii", 'i', "formats::ShiftLeftI32($0, $1)"},
    {"arith.shrsi", "ii", 'i', "$0 >> ($1 & 31)"},
    {"arith.sitofp", "i", 'f', "static_cast<float>($0)"},
    {"arith.subf", "ff", 'f', "$0 - $1"},
    {"arith.subi", "ii", 'i', "formats::SubI32($0, $1)"},
    {"arith.uitofp", "b", 'f', "$0 ? 1.0f : 0.0f"},
    {"arith.xori", "bb", 'b', "$0 != $1"},
    {"arith.xori", "ii", 'i', "$0 ^ $1"},
    {"math.absf", "f", 'f', "arch::Abs($0)"},
    {"math.absi", "i", 'i', "formats::AbsI32($0)"},
    {"math.ceil", "f", 'f', "arch::Ceil($0)"},
    {"math.copysign", "ff", 'f', "formats::CopySign($0, $1)"},
    {"math.exp", "f", 'f', "formats::Exp($0)"},
    {"math.exp2", "f", 'f', "arch::Exp2($0)"},
    {"math.floor", "f", 'f', "arch::Floor($0)"},
    {"math.fma", "fff", 'f', "arch::Fma($0, $1, $2)"},
    {"math.log", "f", 'f', "formats::Log($0)"},
    {"math.log2", "f", 'f', "arch::Log2($0)"},
    {"math.roundeven", "f", 'f', "arch::RoundEven($0)"},
    {"math.rsqrt", "f", 'f', "1.0f / arch::Sqrt($0)"},
    {"math.sqrt", "f", 'f', "arch::Sqrt($0)"},
    {"math.tanh", "f", 'f', "formats::Tanh($0)"},
    {"math.trunc", "f", 'f', "arch::Trunc($0)"},
};

// By the number that the attribute `predicate` holds.
constexpr const char* kFloatComparisons[] = {
    "false",                  // false
    "$0 == $1",               // oeq
    "$0 > $1",                // ogt
    "$0 >= $1",               // oge
    "$0 < $1",                // olt
    "$0 <= $1",               // ole
    "$0 < $1 || $0 > $1",     // one
    "$0 == $0 && $1 == $1",   // ord
    "!($0 < $1 || $0 > $1)",  // ueq
    "!($0 <= $1)",            // ugt
    "!($0 < $1)",             // uge
    "!($0 >= $1)",            // ult
    "!($0 > $1)",             // ule
    "$0 != $1",               // une
    "$0 != $0 || $1 != $1",   // uno
    "true",                   // true
};
constexpr const char* kIntComparisons[] = {
    "$0 == $1",                                      // eq
    "$0 != $1",                                      // ne
    "$0 < $1",                                       // slt
    "$0 <= $1",                                      // sle
    "$0 > $1",                                       // sgt
    "$0 >= $1",                                      // sge
    "static_cast<u32>($0) < static_cast<u32>($1)",   // ult
    "static_cast<u32>($0) <= static_cast<u32>($1)",  // ule
    "static_cast<u32>($0) > static_cast<u32>($1)",   // ugt
    "static_cast<u32>($0) >= static_cast<u32>($1)",  // uge
};

constexpr llvm::StringLiteral kConstant = "arith.constant";
constexpr llvm::StringLiteral kCompareFloat = "arith.cmpf";
constexpr llvm::StringLiteral kCompareInt = "arith.cmpi";

char TypeLetter(mlir::Type type) {
  if (type.isF32()) return 'f';
  if (type.isSignlessInteger(32)) return 'i';
  if (type.isSignlessInteger(1)) return 'b';
  return '?';
}

std::string Letters(mlir::TypeRange types) {
  std::string letters;
  for (mlir::Type type : types) letters += TypeLetter(type);
  return letters;
}

std::string TypesText(llvm::StringRef letters) {
  std::string text;
  for (char letter : letters) {
    absl::StrAppend(&text, text.empty() ? "" : ", ",
                    letter == 'f'   ? "f32"
                    : letter == 'i' ? "i32"
                                    : "i1");
  }
  return text;
}

// The comparisons that an operation's predicate chooses from; empty if it is
// no comparison.
llvm::ArrayRef<const char*> Comparisons(llvm::StringRef name) {
  if (name == kCompareFloat) return kFloatComparisons;
  if (name == kCompareInt) return kIntComparisons;
  return {};
}

const ScoreOp* FindScoreOp(mlir::Operation* op) {
  const std::string operands = Letters(op->getOperandTypes());
  for (const ScoreOp& row : kScoreOps) {
    if (row.name == op->getName().getStringRef() && row.operands == operands &&
        Letters(op->getResultTypes()) == std::string(1, row.result)) {
      return &row;
    }
  }
  return nullptr;
}

// "arith.constant, arith.cmpf, arith.cmpi, arith.addf, ..."
std::string AllowedOps() {
  std::string text = absl::StrCat(kConstant.str(), ", ", kCompareFloat.str(),
                                  ", ", kCompareInt.str());
  llvm::StringRef last;
  for (const ScoreOp& row : kScoreOps) {
    if (row.name != last) absl::StrAppend(&text, ", ", row.name.str());
    last = row.name;
  }
  return text;
}

// The operand types that the table has for operations of this name, or "".
std::string AllowedOperands(llvm::StringRef name) {
  std::string text;
  for (const ScoreOp& row : kScoreOps) {
    if (row.name != name) continue;
    absl::StrAppend(&text, text.empty() ? "(" : " or (",
                    TypesText(row.operands), ")");
  }
  return text;
}

// Attributes change what an operation means: each must be one we print, or
// have no effect.
mlir::LogicalResult VerifyAttributes(mlir::Operation* op) {
  const auto known = [](mlir::NamedAttribute attribute) {
    const llvm::StringRef name = attribute.getName();
    if (name == "value" || name == "predicate") return true;
    std::string text;
    llvm::raw_string_ostream stream(text);
    attribute.getValue().print(stream);
    return text == "#arith.fastmath<none>" || text == "#arith.overflow<none>";
  };
  for (mlir::NamedAttribute attribute : op->getAttrs()) {
    if (known(attribute)) continue;
    return op->emitOpError()
           << "has the attribute '" << attribute.getName().getValue()
           << "', which no device text expresses; a score function is computed "
              "as written; leave it out";
  }
  return mlir::success();
}

mlir::LogicalResult VerifyConstant(mlir::Operation* op) {
  const auto value = op->getAttrOfType<mlir::TypedAttr>("value");
  if (op->getNumResults() == 1 && op->getNumOperands() == 0 && value &&
      mlir::isa<mlir::FloatAttr, mlir::IntegerAttr>(value) &&
      TypeLetter(op->getResult(0).getType()) != '?') {
    return mlir::success();
  }
  return op->emitOpError()
         << "is no f32, i32 or i1; a score function computes with these; write "
            "the constant as one of them";
}

mlir::LogicalResult VerifyOp(mlir::Operation* op) {
  const llvm::StringRef name = op->getName().getStringRef();
  if (op->getNumRegions() != 0 || op->getNumSuccessors() != 0) {
    return op->emitOpError()
           << "branches; a score function is one block; write arith.select";
  }
  const bool listed = name == kConstant || !Comparisons(name).empty() ||
                      !AllowedOperands(name).empty();
  if (!listed) {
    return op->emitOpError()
           << "may not stand in a score function; allowed: " << AllowedOps()
           << "; write it with these";
  }
  if (mlir::failed(VerifyAttributes(op))) return mlir::failure();
  if (name == kConstant) return VerifyConstant(op);
  if (const llvm::ArrayRef<const char*> texts = Comparisons(name);
      !texts.empty()) {
    const auto predicate = op->getAttrOfType<mlir::IntegerAttr>("predicate");
    const char* operands = name == kCompareFloat ? "ff" : "ii";
    if (predicate && predicate.getValue().ult(texts.size()) &&
        Letters(op->getOperandTypes()) == operands) {
      return mlir::success();
    }
    return op->emitOpError() << "compares " << op->getOperandTypes()
                             << "; a score function compares ("
                             << TypesText(operands) << "); convert first";
  }
  if (FindScoreOp(op)) return mlir::success();
  return op->emitOpError() << "takes (" << op->getOperandTypes() << ") to ("
                           << op->getResultTypes()
                           << "); in a score function it takes "
                           << AllowedOperands(name) << "; convert the operands";
}

}  // namespace

mlir::LogicalResult VerifyScoreFunction(mlir::Operation* parent,
                                        mlir::Region& function) {
  constexpr char kSignature[] =
      "(score: f32, q_position: i32, kv_position: i32, q_head: i32) -> f32";
  if (!function.hasOneBlock()) {
    return parent->emitOpError()
           << "has a function of " << llvm::range_size(function)
           << " blocks; a score function is one block; write arith.select";
  }
  mlir::Block& block = function.front();
  if (Letters(block.getArgumentTypes()) != "fiii") {
    return parent->emitOpError()
           << "has a function of (" << block.getArgumentTypes()
           << "); a score function is " << kSignature << "; give it these";
  }
  int ops = 0;
  for (mlir::Operation& op : block.without_terminator()) {
    if (mlir::failed(VerifyOp(&op))) return mlir::failure();
    for (mlir::Value operand : op.getOperands()) {
      if (operand.getParentBlock() == &block) continue;
      return op.emitOpError() << "uses a value from outside the function; a "
                                 "score function sees its arguments only";
    }
    if (++ops > kMaxScoreOps) {
      return parent->emitOpError()
             << "has a function of more than " << kMaxScoreOps
             << " operations; that many run for every score; simplify it";
    }
  }
  mlir::Operation& last = block.back();
  if (Letters(last.getOperandTypes()) != "f" ||
      last.getOperand(0).getParentBlock() != &block) {
    return parent->emitOpError()
           << "has a function that returns (" << last.getOperandTypes()
           << "); a score function is " << kSignature << "; return one f32";
  }
  return mlir::success();
}

void EraseUnusedScoreOps(mlir::Block& block) {
  llvm::SmallVector<mlir::Operation*> ops;
  for (mlir::Operation& op : block.without_terminator()) ops.push_back(&op);
  for (mlir::Operation* op : llvm::reverse(ops)) {
    if (op->use_empty()) op->erase();
  }
}

llvm::StringRef ScoreTypeText(mlir::Type type) {
  switch (TypeLetter(type)) {
    case 'f':
      return "float";
    case 'i':
      return "i32";
    default:
      return "bool";
  }
}

std::string ScoreOpText(mlir::Operation* op,
                        llvm::ArrayRef<std::string> operands) {
  const llvm::StringRef name = op->getName().getStringRef();
  const char* text;
  if (const llvm::ArrayRef<const char*> texts = Comparisons(name);
      !texts.empty()) {
    text = texts[op->getAttrOfType<mlir::IntegerAttr>("predicate").getInt()];
  } else {
    text = FindScoreOp(op)->text;
  }
  switch (operands.size()) {
    case 1:
      return absl::Substitute(text, operands[0]);
    case 2:
      return absl::Substitute(text, operands[0], operands[1]);
    default:
      return absl::Substitute(text, operands[0], operands[1], operands[2]);
  }
}

}  // namespace kvforge::kv
