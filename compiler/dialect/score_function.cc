#include "compiler/dialect/score_function.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/diagnostics.h"
#include "compiler/dialect/score_ops.h"
#include "compiler/spec/kernel_spec.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"
#include "mlir/Parser/Parser.h"
#include "runtime/base/digest.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr size_t kMaxTextBytes = size_t{64} << 10;
// MLIR's parser and printer recurse for each that is open.
constexpr int kMaxNesting = 256;  // parentheses in each other
constexpr int kMaxBraces = 16;
constexpr char kFunctionName[] = "score";
constexpr char kForm[] =
    "func.func @score(%score: f32, %q_position: i32, %kv_position: i32, "
    "%q_head: i32) -> f32";

absl::Status Invalid(absl::string_view asked, absl::string_view supported,
                     absl::string_view advice) {
  return absl::InvalidArgumentError(absl::StrCat(
      "score function: ", asked, "; supported: ", supported, "; ", advice));
}

bool IsWordStart(char c) { return absl::ascii_isalpha(c) || c == '_'; }
bool IsWordPart(char c) {
  return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '$';
}

// Words without a dot that the language has. Names of operations have one, and
// are the verifier's to judge.
constexpr absl::string_view kWords[] = {
    "attributes", "f16",     "bf16",   "f32",  "f64",    "false", "func",
    "i1",         "i16",     "i64",    "i8",   "i32",    "to",    "module",
    "none",       "private", "public", "true", "return", "index"};
constexpr absl::string_view kPredicates[] = {
    "eq",  "ne",  "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge",
    "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "une", "uno"};
constexpr absl::string_view kDialects[] = {"arith.", "math.", "func."};

absl::Status CheckWord(absl::string_view word, int line) {
  if (absl::c_linear_search(kWords, word) ||
      absl::c_linear_search(kPredicates, word)) {
    return absl::OkStatus();
  }
  for (absl::string_view dialect : kDialects) {
    if (absl::StartsWith(word, dialect)) return absl::OkStatus();
  }
  return Invalid(
      absl::StrCat("line ", line, ": '", word.substr(0, 64),
                   "' is no word of "
                   "the language"),
      absl::StrCat("operations of arith and math over f32, i32 and i1 in one ",
                   kForm),
      "write it with these");
}

// Letters, digits, blanks, comments and what the operations' syntax has: no
// strings, attributes, types or regions that other dialects could parse.
absl::Status CheckWords(absl::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return Invalid(absl::StrCat("the text has ", text.size(), " bytes"),
                   absl::StrCat("up to ", kMaxTextBytes), "shorten it");
  }
  int line = 1;
  int nesting = 0;
  int braces = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (c == '/' && i + 1 < text.size() && text[i + 1] == '/') {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
      continue;
    }
    if (c == '%' || c == '@' || c == '^') {  // a name: any word
      while (i + 1 < text.size() && IsWordPart(text[i + 1])) ++i;
      continue;
    }
    if (absl::ascii_isdigit(c)) {  // a number, also 0x7F800000 and 1.0e-05
      while (i + 1 < text.size() && IsWordPart(text[i + 1])) ++i;
      continue;
    }
    if (IsWordStart(c)) {
      const size_t begin = i;
      while (i + 1 < text.size() && IsWordPart(text[i + 1])) ++i;
      RETURN_IF_ERROR(CheckWord(text.substr(begin, i + 1 - begin), line));
      continue;
    }
    if (c == '(') ++nesting;
    if (c == ')' && nesting > 0) --nesting;
    braces += c == '{';
    if (nesting > kMaxNesting || braces > kMaxBraces) {
      return Invalid(absl::StrCat("line ", line, ": too many brackets"),
                     absl::StrCat(kMaxNesting, " '(' in each other and ",
                                  kMaxBraces, " '{'"),
                     "simplify it");
    }
    if (!absl::StrContains(" \t\r\n(){}:,=->+", absl::string_view(&c, 1))) {
      return Invalid(
          absl::StrCat(
              "line ", line, ": the byte ",
              absl::ascii_isprint(c)
                  ? absl::StrCat("'", absl::string_view(&c, 1), "'")
                  : absl::StrCat("0x",
                                 absl::Hex(static_cast<unsigned char>(c))),
              " belongs to no operation"),
          absl::StrCat("operations of arith and math in one ", kForm),
          "write them in MLIR's short form");
    }
  }
  return absl::OkStatus();
}

// The first error while it lives, as a Status.
class FirstError {
 public:
  explicit FirstError(mlir::MLIRContext& context)
      : handler_(&context, [this](mlir::Diagnostic& diagnostic) {
          if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error) {
            return mlir::success();
          }
          if (!message_.empty()) return mlir::success();
          if (const auto at = mlir::dyn_cast<mlir::FileLineColLoc>(
                  diagnostic.getLocation())) {
            message_ = absl::StrCat("line ", at.getLine(), ": ");
          }
          absl::StrAppend(&message_, diagnostic.str());
          return mlir::success();
        }) {}

  absl::Status Status() const {
    return absl::InvalidArgumentError(absl::StrCat(
        "score function: ", message_.empty() ? "it does not parse" : message_,
        "; its form is ", kForm));
  }

 private:
  std::string message_;
  mlir::ScopedDiagnosticHandler handler_;
};

// The one function of a module, or why it is none.
absl::StatusOr<mlir::func::FuncOp> FunctionOf(mlir::ModuleOp module) {
  mlir::Block& body = *module.getBody();
  if (!llvm::hasSingleElement(body)) {
    return Invalid(absl::StrCat("the text has ", llvm::range_size(body),
                                " operations at its top"),
                   absl::StrCat("one ", kForm), "leave one function");
  }
  auto function = mlir::dyn_cast<mlir::func::FuncOp>(&body.front());
  if (!function || function.isExternal()) {
    return Invalid(
        absl::StrCat("the text has ",
                     function ? "a function without a body"
                              : View(body.front().getName().getStringRef())),
        absl::StrCat("one ", kForm), "write the function");
  }
  if (function.getArgAttrsAttr() || function.getResAttrsAttr() ||
      !llvm::all_of(function->getAttrs(), [](mlir::NamedAttribute attribute) {
        return llvm::is_contained(
            {"sym_name", "function_type", "sym_visibility"},
            attribute.getName().getValue());
      })) {
    return Invalid("the function has attributes", "none", "leave them out");
  }
  return function;
}

}  // namespace

void LoadScoreDialects(mlir::MLIRContext& context) {
  context.loadDialect<mlir::arith::ArithDialect, mlir::func::FuncDialect,
                      mlir::math::MathDialect>();
}

absl::StatusOr<mlir::OwningOpRef<mlir::ModuleOp>> ParseScoreFunction(
    absl::string_view text, mlir::MLIRContext& context) {
  RETURN_IF_ERROR(CheckWords(text));
  const FirstError error(context);
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceString<mlir::ModuleOp>(
          View(text), mlir::ParserConfig(&context), "score");
  if (!module) return error.Status();
  ASSIGN_OR_RETURN(mlir::func::FuncOp function, FunctionOf(*module));
  if (mlir::failed(
          kv::VerifyScoreFunction(function, function.getFunctionBody()))) {
    return error.Status();
  }
  kv::EraseUnusedScoreOps(function.getFunctionBody().front());
  function.setName(kFunctionName);
  function.setPublic();
  return module;
}

mlir::Region& ScoreBody(mlir::ModuleOp module) {
  return module.getBody()->front().getRegion(0);
}

std::string CanonicalScoreText(mlir::ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.getBody()->front().print(stream,
                                  mlir::OpPrintingFlags().useLocalScope());
  return text + "\n";
}

std::string ScoreDigest(absl::string_view canonical_text) {
  return Sha256Hex(canonical_text).substr(0, kScoreDigits);
}

}  // namespace kvforge
